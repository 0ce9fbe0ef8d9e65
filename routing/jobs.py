"""A job: what a caller may ask, what travels on the wire, which states exist and which moves are legal.

The table of moves below is the only one. The ledger refuses any other move, so an end is final (DESIGN.md section 4).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from routing.config import HIDDEN, Text, check_text
from routing.errors import FieldError, InvalidJobError, RoutingError, UnknownMessageError
from routing.queues import TierName

# A ticket: what a run of the ticket lane is asked for, wherever it came from.
#
# Everything in it is from outside. Text that its readers would not have seen is taken out: what no person saw must
# not
# order anything (threat D7).

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
    """What a ticket says beside its text, which is the job's prompt."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: Annotated[Text, Field(min_length=1, max_length=MAX_TITLE)]
    labels: Annotated[tuple[Label, ...], Field(max_length=MAX_LABELS)] = ()
    """Rules of the project may ask for a gate because of one (S-102)."""
    source: Annotated[Text, Field(min_length=1, max_length=100)] | None = None
    """Where it came from: `file`, `github`, `linear`."""
    key: Annotated[Text, Field(min_length=1, max_length=200)] | None = None
    """What its tracker calls it: `owner/name#12`, `ENG-12`."""
    reference: Annotated[Text, Field(min_length=1, max_length=200)] | None = None
    """The tracker's own id, by which its interface is told what became of the ticket."""
    url: Annotated[Text, Field(max_length=2048, pattern=r"^https?://[^\s]+$")] | None = None


def visible(text: str) -> str:
    """Return text as its readers saw it: without comments of its markup and without characters that show nothing."""
    return _CONTROL.sub(" ", _INVISIBLE.sub("", _COMMENT.sub("", text.replace("\r\n", "\n")))).strip()


def prompt_of(title: str, body: str, *, max_bytes: int) -> str:
    """Return a ticket's text as a job's prompt, of which too long a one loses its end and says so."""
    whole = f"{title}\n\n{body}".strip()
    data = whole.encode()
    if len(data) <= max_bytes:
        return whole
    return data[: max_bytes - len(_CUT_NOTE)].decode(errors="ignore") + _CUT_NOTE


def priority_of(labels: tuple[str, ...]) -> Priority:
    """Return the most urgent priority that a label names (`P0`, `priority: p1`); P2 where none does."""
    found = (_PRIORITY.fullmatch(label.strip()) for label in labels)
    named = {int(match.group(1)) for match in found if match is not None}
    return _PRIORITIES[min(named, default=2)]


MAX_PROMPT_BYTES = 32 * 1024
MAX_ERRORS = 50
"""So many bad fields are named; a flood of them makes no flood of errors."""
SITE_NAME_RULE = "1 to 63 of a-z, 0-9 and hyphen, with a letter or digit at both ends"
ModelT = TypeVar("ModelT", bound=BaseModel)
_SITE_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


class State(StrEnum):
    """Where a job is. The ten after `publishing` are ends."""

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
"""Ends that nobody wanted: a failure, or a limit."""

MOVES: dict[State, frozenset[State]] = {
    State.RECEIVED: frozenset(
        {
            State.CLARIFYING,
            State.DEBATING,
            State.QUEUED,
            State.ANSWERED,
            State.REJECTED,
            State.CANCELLED,
            State.EXPIRED,
        }
    )
    | FAILURES,
    State.CLARIFYING: frozenset(
        {State.RECEIVED, State.DEBATING, State.QUEUED, State.ANSWERED, State.CANCELLED, State.EXPIRED}
    ),
    State.DEBATING: frozenset({State.QUEUED, State.CLARIFYING, State.REJECTED, State.CANCELLED, State.EXPIRED})
    | FAILURES,
    State.QUEUED: frozenset({State.RUNNING, State.CANCELLED, State.EXPIRED, State.FAILED}),
    State.RUNNING: frozenset({State.QUEUED, State.SCANNING, State.ANSWERED, State.CANCELLED}) | FAILURES,
    State.SCANNING: frozenset({State.QUEUED, State.AWAITING_APPROVAL, State.PUBLISHING, State.CANCELLED}) | FAILURES,
    State.AWAITING_APPROVAL: frozenset({State.PUBLISHING, State.REJECTED, State.EXPIRED, State.CANCELLED}),
    State.PUBLISHING: frozenset({State.PUBLISHED, State.FAILED}),
}
"""Legal moves. A state that is no key here is an end."""

GATE_MOVES: dict[State, frozenset[State]] = {
    State.RUNNING: frozenset({State.AWAITING_APPROVAL}),
    State.AWAITING_APPROVAL: frozenset({State.RUNNING}),
}
"""Moves that only a run of the ticket lane can make, besides: it stops at a gate, and goes on behind it."""

ENDS: frozenset[State] = frozenset(state for state in State if state not in MOVES)

USED_ENDS = frozenset({State.ANSWERED.value, State.PUBLISHED.value})
"""The ends in which somebody got what the job was paid for."""
PARKED = "parked"
"""Outcome of an attempt that ended because its lane was parked, and whose work is lost."""
PARKED_KEPT = "parked_kept"
"""The same, of one whose work is kept: the job goes on from it."""
WASTED_OUTCOMES = frozenset({state.value for state in ENDS} - USED_ENDS | {"lost", "escalated", PARKED})
"""Outcomes of attempts whose result nobody used."""

RESUMABLE = FAILURES
"""Ends after which the same work can go on."""
REVISABLE = RESUMABLE | {State.AWAITING_APPROVAL, State.REJECTED, State.EXPIRED, State.CANCELLED}
"""States in which what a job made can be changed by a new request; `published` work is changed by a new job."""


class Reason(StrEnum):
    """Why a job ended or moved on: one code for a failure, decided in one place (workers/retries.py)."""

    DONE = "done"
    INVALID_REQUEST = "invalid_request"
    NOT_AVAILABLE = "not_available"
    SPEC_INVALID = "spec_invalid"
    SPEC_POOR = "spec_poor"
    NOT_SPEC_MANAGED = "not_spec_managed"
    PATCH_INVALID = "patch_invalid"
    PATCH_REFUSED = "patch_refused"
    COMMAND_REFUSED = "command_refused"
    AGENT_FAILED = "agent_failed"
    AGENT_BLOCKED = "agent_blocked"
    REWORK_EXHAUSTED = "rework_exhausted"
    OUTPUT_REFUSED = "output_refused"
    BUILD_FAILED = "build_failed"
    BUILD_SLOW = "build_slow"
    BOX_FAILED = "box_failed"
    RESOURCE_LIMIT = "resource_limit"
    TIME_LIMIT = "time_limit"
    COST_CAP = "cost_cap"
    OUTPUT_CAP = "output_cap"
    SCAN_REFUSED = "scan_refused"
    PUBLISH_CONFLICT = "publish_conflict"
    PUBLISH_FAILED = "publish_failed"
    REVIEWER_REJECTED = "reviewer_rejected"
    REVISED = "revised"
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
    REMOTE_UNREACHABLE = "remote_unreachable"
    STORAGE_UNAVAILABLE = "storage_unavailable"
    INTERNAL_ERROR = "internal_error"


class Door(StrEnum):
    """How a job came in."""

    HTTP = "http"
    CELERY = "celery"
    PYTHON = "python"
    CLI = "cli"


def is_end(state: State) -> bool:
    """Tell whether a job in `state` can never move again."""
    return state in ENDS


def check_move(origin: State, target: State, *, is_run: bool = False) -> None:
    """Raise unless the table of moves holds this one.

    Raises:
        RoutingError: our fault; a caller asked the ledger for a move that does not exist.
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
    """Return `name` when it can name a site.

    Raises:
        ValueError: the caller's fault; the message is the rule.
    """
    if not _SITE_NAME.fullmatch(name):
        raise ValueError(f"must be {SITE_NAME_RULE}")
    return name


SiteName = Annotated[str, AfterValidator(check_site_name)]


class Option(BaseModel):
    """One choice that a clarification offers (seed 004)."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_max_length=200)

    id: Text = Field(min_length=1)
    label: Text = Field(min_length=1)
    source: Literal["chat", "widget"] = "chat"


def _check_options(options: tuple[Option, ...]) -> tuple[Option, ...]:
    if len({option.id for option in options}) < len(options):
        raise ValueError("two options must not have the same id")
    return options


class JobRequest(BaseModel):
    """What a caller asks: the body of `POST /v1/jobs`, and the kwargs of the Celery task `pointsman.submit`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: Annotated[str, AfterValidator(_check_prompt)]
    """The edit or question in plain words, at most 32 KiB of UTF-8."""
    site: SiteName | None = None
    """An existing site of the caller's tenant."""
    new_site: SiteName | None = None
    """The name of a site to be made."""
    project: SiteName | None = None
    """A code project of the caller's tenant (ticket lane)."""
    ticket: Ticket | None = None
    """What a ticket says beside its text; only for a project."""
    session: Annotated[Text, Field(min_length=1, max_length=128)] | None = None
    tier: TierName | None = None
    """Starting tier chosen by the caller (H-072). It never bypasses scan or approval."""
    pin: bool = False
    """Stay on the chosen tier: no escalation (A14)."""
    advanced_edit: bool = False
    preference: Literal["spec", "agent"] | None = None
    options: Annotated[tuple[Option, ...], Field(max_length=50), AfterValidator(_check_options)] = ()
    """What to offer if the request has to be clarified. An option whose id is the name of one of the tenant's sites
    binds the job to that site; any other ends the job with the id as its result."""
    budget_usd: Annotated[float, Field(gt=0, le=25, allow_inf_nan=False)] | None = None
    """A cap of the caller's own, in USD. It can only lower what the policy allows."""
    priority: Literal["P0", "P1", "P2", "P3"] = "P2"
    callback_url: Annotated[Text, Field(max_length=2048, pattern=r"^https?://[^\s]+$")] | None = None
    idempotency_key: Annotated[Text, Field(min_length=1, max_length=200)] | None = None
    supersede_key: Annotated[Text, Field(min_length=1, max_length=200)] | None = None
    """This job takes the place of older ones of the tenant that are about the same target and carry the same key."""
    start_at: AwareDatetime | None = None
    """Not before then (ISO 8601 with an offset), at most 30 days ahead."""

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
    """Read a request from outside.

    Raises:
        InvalidJobError: the caller's fault; it names each field and the rule it breaks, and repeats no value.
    """
    return parse_as(JobRequest, body)


def parse_as(model: type[ModelT], body: object) -> ModelT:
    """Read what a caller asks, as one of the models for it.

    Raises:
        InvalidJobError: the caller's fault; it names each field and the rule it breaks, and repeats no value.
    """
    try:
        return model.model_validate(body)
    except ValidationError as error:
        found = error.errors(include_url=False)[:MAX_ERRORS]
        raise InvalidJobError(tuple(_field_error(item) for item in found)) from None


_RULES = {
    "extra_forbidden": "is not a field of a job request",
    "missing": "is required",
    "model_type": "must be a JSON object",
    "dict_type": "must be a JSON object",
}


def _field_error(item: Any) -> FieldError:
    field = _printable(".".join(str(part) for part in item["loc"]))[:200] or "body"
    message = _RULES.get(item["type"]) or item["msg"].removeprefix("Value error, ")
    return FieldError(field, message[:1].lower() + message[1:])


def _printable(name: str) -> str:
    """The name of an unknown field is the caller's own: it is shown, but it may hold anything."""
    shown = "".join(character if character.isprintable() else "\ufffd" for character in name)
    return HIDDEN.sub("[redacted]", shown)


class JobMessage(BaseModel):
    """What a broker message carries: ids, never content (A21). Unknown fields are ignored: producers deploy first."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: Literal[1] = 1
    job_id: UUID
    fence: int = Field(ge=0, lt=2**31)
    """The job's fence when it was pushed. A claim succeeds only while it still is the job's fence, so of two copies of
    a message one is refused."""


# How what another version of the product wrote is read: a broker's message, and what is stored in the ledger.
#
# Fields are added within a version, with a default, and whoever does not know them leaves them out. A new version is
# for
# a message that must not be read with an older one's eyes; but `schema_version`, `job_id` and `fence` mean the same
# in
# every version, so a worker of any age can say which job it is that it has to leave to others.

MESSAGE_VERSION = 1
"""The newest version that this code reads, and the one that it writes."""
StoredT = TypeVar("StoredT", bound=BaseModel)


class Envelope(BaseModel):
    """What every version of a message says in the same way."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: int = MESSAGE_VERSION
    job_id: UUID
    fence: int = Field(ge=0, lt=2**31)


def read_message(body: object) -> JobMessage:
    """Read what the broker delivered.

    Raises:
        UnknownMessageError: nobody's fault: a newer version sent it; it names the job, which is left to others.
        ValidationError: the sender's fault: it is no message of ours.
    """
    envelope = Envelope.model_validate(body)
    if envelope.schema_version != MESSAGE_VERSION:
        raise UnknownMessageError(envelope.schema_version, envelope.job_id, envelope.fence)
    return JobMessage.model_validate(body)


def read_stored(model: type[StoredT], value: object) -> StoredT:
    """Read what a process of this version or of a neighbouring one has stored.

    Raises:
        ValidationError: our fault, or of whoever wrote to the ledger past us.
    """
    return model.model_validate(value, extra="ignore")
