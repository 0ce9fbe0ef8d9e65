"""A job: its request, its broker message, its states and the legal moves between them.

The ledger refuses every move that is not in the table below, so an end is final (DESIGN.md section 4).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.json_schema import SkipJsonSchema

from routing.config import Text, check_text
from routing.errors import FieldError, InvalidJobError, RoutingError, UnknownMessageError
from routing.queues import TierName
from routing.redaction import HIDDEN

MAX_LABELS = 50
MAX_TITLE = 300
_CUT_NOTE = "\n\n[The ticket is longer; the rest was cut off.]"
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_INVISIBLE = re.compile("[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_PRIORITY = re.compile(r"(?:priority\s*[:/ -]?\s*)?p([0-3])", re.IGNORECASE)

Label = Annotated[Text, Field(min_length=1, max_length=100)]
Priority = Literal["P0", "P1", "P2", "P3"]
_PRIORITIES: tuple[Priority, ...] = ("P0", "P1", "P2", "P3")


class Ticket(BaseModel):
    """The fields of a ticket; its text is the job's prompt."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: Annotated[Text, Field(min_length=1, max_length=MAX_TITLE)]
    labels: Annotated[tuple[Label, ...], Field(max_length=MAX_LABELS)] = ()
    """A project's rules may require a gate for a label (S-102)."""
    source: Annotated[Text, Field(min_length=1, max_length=100)] | None = None
    """`file`, `github`, `gitlab` or `linear`."""
    key: Annotated[Text, Field(min_length=1, max_length=200)] | None = None
    """The tracker's name for it: `owner/name#12`, `ENG-12`."""
    reference: Annotated[Text, Field(min_length=1, max_length=200)] | None = None
    """The tracker's internal id, used to report the result back."""
    url: Annotated[Text, Field(max_length=2048, pattern=r"^https?://[^\s]+$")] | None = None


def visible(text: str) -> str:
    """Return the text as its readers saw it: what nobody could see must not give orders (threat D7)."""
    return _CONTROL.sub(" ", _INVISIBLE.sub("", _COMMENT.sub("", text.replace("\r\n", "\n")))).strip()


def build_ticket_prompt(title: str, body: str) -> str:
    """Return a ticket's text as a prompt; one that is too long is cut and says so."""
    whole = f"{title}\n\n{body}".strip()
    data = whole.encode()
    if len(data) <= MAX_PROMPT_BYTES:
        return whole
    return data[: MAX_PROMPT_BYTES - len(_CUT_NOTE)].decode(errors="ignore") + _CUT_NOTE


def parse_priority(labels: tuple[str, ...]) -> Priority:
    """Return the most urgent priority among the labels (`P0`, `priority: p1`), P2 by default."""
    matches = (_PRIORITY.fullmatch(label.strip()) for label in labels)
    return _PRIORITIES[min((int(match[1]) for match in matches if match), default=2)]


MAX_PROMPT_BYTES = 32 * 1024
MAX_ERRORS = 50
"""Invalid fields that one error reports."""
SITE_NAME_RULE = "1 to 63 of a-z, 0-9 and hyphen, with a letter or digit at both ends"
ModelT = TypeVar("ModelT", bound=BaseModel)
_SITE_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


class State(StrEnum):
    """State of a job; the ten after `publishing` are final."""

    RECEIVED = "received"
    CLARIFYING = "clarifying"
    DEBATING = "debating"
    QUEUED = "queued"
    RUNNING = "running"
    SCANNING = "scanning"
    AWAITING_APPROVAL = "awaiting_approval"
    PUBLISHING = "publishing"
    ANSWERED = "answered"
    PUBLISHED = "published"
    REJECTED = "rejected"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    BUDGET_EXCEEDED = "budget_exceeded"
    OUTPUT_EXCEEDED = "output_exceeded"
    ESCALATED = "escalated"


FAILURES = frozenset({State.FAILED, State.TIMED_OUT, State.BUDGET_EXCEEDED, State.OUTPUT_EXCEEDED, State.ESCALATED})
"""Unwanted ends: a failure or a limit."""

MOVES: dict[State, frozenset[State]] = {
    State.RECEIVED: frozenset(
        {State.CLARIFYING, State.DEBATING, State.QUEUED, State.ANSWERED, State.REJECTED, State.CANCELLED, State.EXPIRED}
    )
    | FAILURES,
    State.CLARIFYING: frozenset(
        {State.RECEIVED, State.DEBATING, State.QUEUED, State.ANSWERED, State.CANCELLED, State.EXPIRED}
    ),
    State.DEBATING: frozenset({State.QUEUED, State.CLARIFYING, State.REJECTED, State.CANCELLED, State.EXPIRED})
    | FAILURES,
    State.QUEUED: frozenset({State.RUNNING, State.CANCELLED, State.EXPIRED, State.FAILED}),
    State.RUNNING: frozenset({State.QUEUED, State.CLARIFYING, State.SCANNING, State.ANSWERED, State.CANCELLED})
    | FAILURES,
    State.SCANNING: frozenset({State.QUEUED, State.AWAITING_APPROVAL, State.PUBLISHING, State.CANCELLED}) | FAILURES,
    State.AWAITING_APPROVAL: frozenset({State.PUBLISHING, State.REJECTED, State.EXPIRED, State.CANCELLED}),
    State.PUBLISHING: frozenset({State.PUBLISHED, State.FAILED, State.AWAITING_APPROVAL}),
}
"""Legal moves. A state without an entry is an end. Out of `publishing` goes back only what no worker has taken up."""

GATE_MOVES: dict[State, frozenset[State]] = {
    State.RUNNING: frozenset({State.AWAITING_APPROVAL}),
    State.AWAITING_APPROVAL: frozenset({State.RUNNING}),
}
"""Additional moves of a run, which stops at a gate and continues after it."""

ENDS: frozenset[State] = frozenset(state for state in State if state not in MOVES)

USED_ENDS = frozenset({State.ANSWERED.value, State.PUBLISHED.value})
"""Ends with a delivered result."""
DEFERRED = "deferred"
"""Outcome of an attempt whose provider circuit opened; its work is lost."""
DEFERRED_KEPT = "deferred_kept"
"""The same, but the job continues from the attempt's work."""
ASKED = "asked"
"""Outcome of an attempt that asked the owner."""
ANSWERS = "answers"
"""The key of a job's result that holds what its owner was asked at work, each as `question` and `answer`."""
OPEN_QUESTION = "open_question"
"""The key of a job's result that holds what its owner is asked with the preview; the next round may answer it."""
MAX_QUESTIONS = 2
"""A job asks at work; then it does what is clear."""
PAID_REPLIES = "paid_replies"
"""The key of a waiting job's result that holds the model replies its attempts paid for; the next one reads them."""
WASTED_OUTCOMES = frozenset({state.value for state in ENDS} - USED_ENDS | {"lost", "escalated", DEFERRED})
"""Outcomes of attempts whose result was not used."""

RESUMABLE = FAILURES
"""Ends from which the same work can be resumed."""
REVISABLE = RESUMABLE | {State.AWAITING_APPROVAL, State.REJECTED, State.EXPIRED, State.CANCELLED}
"""States whose result a revision can change; `published` work needs a new job."""
REVISABLE_RUNS = (REVISABLE | {State.PUBLISHED, State.ANSWERED}) - {State.AWAITING_APPROVAL}
"""The same of a run, whose pull request can take another commit."""


class Reason(StrEnum):
    """Why a job ended or moved; workers/retries.py decides which."""

    DONE = "done"
    INVALID_REQUEST = "invalid_request"
    NOT_AVAILABLE = "not_available"
    SPEC_INVALID = "spec_invalid"
    SPEC_POOR = "spec_poor"
    BEYOND_TIER = "beyond_tier"
    NOT_SPEC_MANAGED = "not_spec_managed"
    PATCH_INVALID = "patch_invalid"
    PATCH_REFUSED = "patch_refused"
    COMMAND_REFUSED = "command_refused"
    AGENT_FAILED = "agent_failed"
    AGENT_BLOCKED = "agent_blocked"
    REWORK_EXHAUSTED = "rework_exhausted"
    OUTPUT_REFUSED = "output_refused"
    UPLOAD_REFUSED = "upload_refused"
    BUILD_FAILED = "build_failed"
    BUILD_SLOW = "build_slow"
    BOX_FAILED = "box_failed"
    SERVICE_FAILED = "service_failed"
    RESOURCE_LIMIT = "resource_limit"
    TIME_LIMIT = "time_limit"
    COST_CAP = "cost_cap"
    OUTPUT_CAP = "output_cap"
    SCAN_REFUSED = "scan_refused"
    PUBLISH_CONFLICT = "publish_conflict"
    PUBLISH_FAILED = "publish_failed"
    REVIEWER_REJECTED = "reviewer_rejected"
    REVISED = "revised"
    QUESTION = "question"
    DEBATE_STOPPED = "debate_stopped"
    DEBATE_ESCALATED = "debate_escalated"
    APPROVAL_EXPIRED = "approval_expired"
    QUEUE_EXPIRED = "queue_expired"
    QUEUE_FULL = "queue_full"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    WORKER_LOST = "worker_lost"
    WORKER_STOPPED = "worker_stopped"
    NO_PROVIDER_KEY = "no_provider_key"
    PROVIDER_BUSY = "provider_busy"
    PROVIDER_ERROR = "provider_error"
    GATEWAY_UNREACHABLE = "gateway_unreachable"
    LEDGER_UNREACHABLE = "ledger_unreachable"
    REMOTE_UNREACHABLE = "remote_unreachable"
    STORAGE_UNAVAILABLE = "storage_unavailable"
    INTERNAL_ERROR = "internal_error"


class Source(StrEnum):
    """How a job was submitted."""

    HTTP = "http"
    CELERY = "celery"
    PYTHON = "python"
    CLI = "cli"


def is_end(state: State) -> bool:
    """Return whether `state` is final."""
    return state in ENDS


def check_move(origin: State, target: State, *, is_run: bool = False) -> None:
    """Raise unless the move is legal.

    Raises:
        RoutingError: our fault: the caller attempted an illegal move.
    """
    legal = MOVES.get(origin, frozenset()) | (GATE_MOVES.get(origin, frozenset()) if is_run else frozenset())
    if target not in legal:
        raise RoutingError(f"a job cannot move from {origin.value} to {target.value}")


def _check_prompt(prompt: str) -> str:
    if not prompt.strip():
        raise ValueError("must not be empty")
    if len(check_text(prompt).encode()) > MAX_PROMPT_BYTES:
        raise ValueError(f"must not be longer than {MAX_PROMPT_BYTES} bytes of UTF-8")
    return prompt


def check_site_name(name: str) -> str:
    """Return `name` if it is a valid site name.

    Raises:
        ValueError: the caller's fault; the message states the rule.
    """
    if not _SITE_NAME.fullmatch(name):
        raise ValueError(f"must be {SITE_NAME_RULE}")
    return name


SiteName = Annotated[
    str, AfterValidator(check_site_name), Field(json_schema_extra={"pattern": f"^{_SITE_NAME.pattern}$"})
]


class Option(BaseModel):
    """A choice offered by a clarification (seed 004)."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_max_length=200)

    id: Text = Field(min_length=1)
    label: Text = Field(min_length=1)
    source: Literal["chat", "widget"] = "chat"


def _check_options(options: tuple[Option, ...]) -> tuple[Option, ...]:
    if len({option.id for option in options}) < len(options):
        raise ValueError("two options must not have the same id")
    return options


_URL = r"^https?://[^\s]+$"
CallbackUrl = Annotated[Text, Field(max_length=2048, pattern=_URL, json_schema_extra={"pattern": _URL})]
IdempotencyKey = Annotated[Text, Field(min_length=1, max_length=200)]


class Upload(BaseModel):
    """An archive that a job imports, in the content store."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str
    total_bytes: int


class JobRequest(BaseModel):
    """A submission: the body of `POST /v1/jobs` and the kwargs of the Celery task `pointsman.submit`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: Annotated[str, AfterValidator(_check_prompt)]
    """The edit or question in plain words, at most 32 KiB of UTF-8."""
    site: SiteName | None = None
    """An existing site of the caller's tenant."""
    new_site: SiteName | None = None
    """The name of a site to create."""
    project: SiteName | None = None
    """A code project of the caller's tenant (ticket workflow)."""
    ticket: Ticket | None = None
    """Requires `project`."""
    session: Annotated[Text, Field(min_length=1, max_length=128)] | None = None
    tier: TierName | None = None
    """Starting tier (H-072). It never bypasses scan or approval."""
    pin: bool = False
    """Stay on the chosen tier: no escalation (A14)."""
    advanced_edit: bool = False
    preference: Literal["spec", "agent"] | None = None
    options: Annotated[tuple[Option, ...], Field(max_length=50), AfterValidator(_check_options)] = ()
    """Choices to offer if the request needs clarification. An option whose id is the name of one of the tenant's sites
    binds the job to that site; any other ends the job with the id as its result."""
    budget_usd: Annotated[float, Field(gt=0, le=25, allow_inf_nan=False)] | None = None
    """The caller's budget in USD, which can only lower the policy's."""
    priority: Literal["P0", "P1", "P2", "P3"] = "P2"
    callback_url: CallbackUrl | None = None
    idempotency_key: IdempotencyKey | None = None
    supersede_key: Annotated[Text, Field(min_length=1, max_length=200)] | None = None
    """Replaces the tenant's older jobs on the same target with the same key."""
    start_at: AwareDatetime | None = None
    """Earliest start (ISO 8601 with an offset), at most 30 days ahead; one in the past is now."""
    upload: SkipJsonSchema[Upload | None] = None
    """What becomes the content of `site`, which is made if there is none of this name. No sender's field: the API sets
    it once it has stored the archive (`producers.use_cases.imports`)."""

    @model_validator(mode="after")
    def _check_together(self) -> JobRequest:
        targets = [name for name in ("site", "new_site", "project") if getattr(self, name) is not None]
        if len(targets) > 1:
            raise ValueError(f"give only one of site, new_site and project, not {' and '.join(targets)}")
        if self.ticket is not None and self.project is None:
            raise ValueError("ticket needs project: nothing else is planned from one")
        if self.pin and self.tier is None:
            raise ValueError("pin needs tier: there is nothing to stay on")
        return self


def parse_request(body: object) -> JobRequest:
    """Validate a submission; raises as `parse_as` does."""
    return parse_as(JobRequest, body)


def parse_as(model: type[ModelT], body: object) -> ModelT:
    """Validate untrusted input as `model`.

    Raises:
        InvalidJobError: the caller's fault; names each field and its rule, and repeats no value.
    """
    try:
        return model.model_validate(body)
    except ValidationError as error:
        errors = error.errors(include_url=False)[:MAX_ERRORS]
        raise InvalidJobError(tuple(_field_error(item) for item in errors)) from None


_RULES = {
    "extra_forbidden": "is not a field of this request",
    "missing": "is required",
    "model_type": "must be a JSON object",
    "dict_type": "must be a JSON object",
    "uuid_parsing": "must be a UUID",
}


def _field_error(item: Any) -> FieldError:
    field = _printable(".".join(str(part) for part in item["loc"]))[:200] or "body"
    return FieldError(field, rule_of(item))


def rule_of(item: Any) -> str:
    """Return the rule that one of pydantic's errors stands for, in words that follow a field's name."""
    message = _RULES.get(item["type"]) or item["msg"].removeprefix("Value error, ")
    return str(message[:1].lower() + message[1:])


def _printable(name: str) -> str:
    """Return an unknown field's name, which may hold anything, so that it can be shown."""
    shown = "".join(character if character.isprintable() else "\ufffd" for character in name)
    return HIDDEN.sub("[redacted]", shown)


class JobMessage(BaseModel):
    """A broker message: ids, never content (A21). Unknown fields are ignored because producers deploy first."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: Literal[1] = 1
    job_id: UUID
    fence: int = Field(ge=0, lt=2**31)
    """The job's fence when the message was pushed. A claim with any other fence fails, so only one of two copies of a
    message is accepted."""


# A field is added within a version, with a default. A new version is for a message that older workers must not
# interpret; `schema_version`, `job_id` and `fence` never change, so that any worker can requeue the job by its id.

MESSAGE_VERSION = 1
"""The version that this code writes, and the newest that it reads."""
StoredT = TypeVar("StoredT", bound=BaseModel)


class Envelope(BaseModel):
    """The fields that every message version has."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: int = MESSAGE_VERSION
    job_id: UUID
    fence: int = Field(ge=0, lt=2**31)


def read_message(body: object) -> JobMessage:
    """Parse a broker message.

    Raises:
        UnknownMessageError: nobody's fault: a newer version sent it; names the job, which is requeued.
        ValidationError: the sender's fault.
    """
    envelope = Envelope.model_validate(body)
    if envelope.schema_version != MESSAGE_VERSION:
        raise UnknownMessageError(envelope.schema_version, envelope.job_id, envelope.fence)
    return JobMessage.model_validate(body)


def read_stored(model: type[StoredT], value: object) -> StoredT:
    """Parse a value that this or an adjacent version stored; unknown fields are ignored."""
    return model.model_validate(value, extra="ignore")
