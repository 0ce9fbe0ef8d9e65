"""What a handler sees of its attempt: the job, its limits, its model client."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from gateway.client import ModelClient, Text, ToolCall, is_away
from gateway.errors import BudgetExceededError, CallTimeoutError, GatewayError, ProviderBusyError
from ledger.events import EventKind
from ledger.job_ends import is_import
from ledger.runs.steps import StepOrder
from monitoring import traces
from routing.jobs import PAID_REPLIES
from routing.policy.agents import AccountsConfig
from routing.policy.platform import ModelCall
from routing.policy.prices import BudgetExceeded, Usage
from routing.queues import QUEUES, CallPurpose, Limits, QueueName
from routing.rounds import TRANSCRIPT
from sandbox.box import Box
from workers import dense
from workers.boxes import PoolOnDemand, no_boxes
from workers.compute import Step
from workers.config import RunsConfig
from workers.errors import SoftTimeLimit
from workers.inputs import Inputs
from workers.retries import MAX_WAIT_SECONDS, decide_call, is_storage_error

ResultT = TypeVar("ResultT")
Values = ParamSpec("Values")
Report = Callable[[EventKind, Mapping[str, Any]], None]

logger = logging.getLogger(__name__)

_MIN_NANOUSD = 100_000
STORE_PAUSE_SECONDS = 5.0
"""Between two tries to store paid work."""
CHECK_SECONDS = 2.0
"""How often an attempt checks, while its command runs in a box, that its job is still wanted."""


def _closed_circuit(model: str) -> float | None:
    return None


def _cannot_charge(nanousd: int, model: str) -> BudgetExceeded | None:
    return BudgetExceeded("unknown")


def _if_it_came(call: Future[ToolCall], *, lost: tuple[type[GatewayError], ...]) -> ToolCall | None:
    try:
        return call.result()
    except lost:
        return None


@dataclass(frozen=True)
class Prompt:
    """What one call asks, whose reply must use its tool."""

    purpose: CallPurpose
    system: str
    tool: Mapping[str, Any]
    parts: Sequence[Text]
    waits: bool = False
    """Whether it begins once the first beside it has ended: all their worst cases may not fit the limit of cost."""


@dataclass(frozen=True, kw_only=True)
class HandlerResources:
    """What every attempt's handler uses of its process."""

    gateway_url: str
    boxes: PoolOnDemand = field(default_factory=no_boxes)
    """Where untrusted code runs."""
    accounts: AccountsConfig = field(default_factory=AccountsConfig)
    """Accounts at forges and trackers."""
    runs: RunsConfig = field(default_factory=RunsConfig)
    """Where workspaces of runs are, and how they reach their projects."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The worker's own, without Pointsman's settings: for the one runner that works on its machine (ADR-013)."""
    known_keys: tuple[str, ...] = ()
    """Secrets of this installation, which no output may contain."""


@dataclass(frozen=True, kw_only=True)
class Attempt(Inputs):
    """One attempt at one job, as its handler sees it: it waits for models and boxes here, and computes by `compute`."""

    resources: HandlerResources
    check: Callable[[], None]
    """Raises when the job was cancelled or taken away; called between steps."""
    report: Report
    """Records an event for the job's owner."""
    budget_exceeded: Callable[[], BudgetExceeded | None]
    """Returns the budget, if any, that refused or cut a model call of this attempt."""
    bind_egress: Callable[[str | None, str | None], None]
    """Restricts the attempt's token to one address, that of its box's forwarder: its own token, or the standby
    session's. Without an address the token is revoked.
    """
    begin_scan: Callable[[], None] = lambda: None
    """Records that its work is done and will be scanned."""
    circuit_wait: Callable[[str], float | None] = _closed_circuit
    """For how many seconds the circuit of a model stays open; 0 while it has to be tested yet, None if closed."""
    spent_nanousd: int = 0
    """What the job had spent when the attempt began, over all rounds and tiers."""
    charge_unmetered: Callable[[int, str], BudgetExceeded | None] = _cannot_charge
    """Charges, in nanodollars, the most that a step may cost whose calls bypass the gateway; returns the budget that it
    exceeds.
    """
    step_order: StepOrder | None = None
    """The order, where the job is a step of a run."""
    tokens: list[str] = field(default_factory=list)
    """Tokens of the standby sessions that it took over."""
    began: float = field(default_factory=time.monotonic)
    """When the attempt began, on the monotonic clock."""
    kept: list[str] = field(default_factory=list)
    """What would be kept if the attempt ended now, in words for the job's owner."""

    @property
    def is_finishing(self) -> bool:
        """Whether it continues the same request, so that what was kept may already be all of it."""
        return self.begun is not None and bool((self.claim.job.result.get("begun") or {}).get("is_kept"))

    @property
    def begun_transcript(self) -> str | None:
        """The digest of what the code agent said whose work was kept, from which the same request goes on."""
        begun = self.claim.job.result.get("begun") or {}
        return begun.get(TRANSCRIPT) if self.is_finishing or (self.step_order and begun.get("is_kept")) else None

    @property
    def remaining_nanousd(self) -> int:
        """What the job's budget had left when the attempt began, in nanodollars; never 0, which means no limit."""
        return max(self.claim.job.cap_nanousd - self.spent_nanousd, _MIN_NANOUSD)

    @property
    def limits(self) -> Limits:
        """The limits of this attempt."""
        return self.policy.queues[QueueName(self.claim.attempt.queue)]

    @property
    def output_bytes(self) -> int:
        """The most that it may put out: its queue's limit, or what an uploaded site may have."""
        return self.policy.uploads.site_bytes if is_import(self.claim.job) else self.limits.output_bytes

    @property
    def token(self) -> str:
        """The token with which its session calls models."""
        return self.tokens[-1] if self.tokens else self.claim.token

    @property
    def session_keys(self) -> tuple[str, ...]:
        """The tokens of its sessions, all younger than its base."""
        return (self.claim.token, *self.tokens)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no output may contain: the installation's keys and the tokens of its sessions."""
        return (*self.resources.known_keys, *self.session_keys)

    @property
    def is_pinned(self) -> bool:
        """Whether the caller pinned the tier (A14)."""
        return bool(self.claim.job.request.get("pin"))

    @cached_property
    def models(self) -> ModelClient:
        """The model client, which knows only the gateway and this attempt's token."""
        url, seconds = self.resources.gateway_url, self.limits.hard_seconds
        return ModelClient(url, self.claim.token, timeout_seconds=seconds, replies=self.replies)

    @cached_property
    def replies(self) -> dict[str, Any]:
        """The model replies that this job's waiting attempts and this one paid for, by the digest of their request."""
        return dict(self.claim.job.result.get(PAID_REPLIES) or {})

    @property
    def has_called(self) -> bool:
        """Whether it has called a model."""
        return "models" in self.__dict__

    def abort(self, cause: BaseException) -> None:
        """Let its model calls, now and later, raise `cause`. Called by another thread."""
        if self.has_called:
            self.models.abort(cause)

    def close(self) -> None:
        """Close what the attempt opened, whatever its outcome."""
        if self.has_called:
            self.models.close()

    def call(self, purpose: CallPurpose, make: Callable[[ModelClient, ModelCall], ResultT]) -> ResultT:
        """Make one model call of the policy's, with retries; raises as `ask` does."""
        return self.ask(purpose, lambda models: make(models, self.policy.calls[purpose]))

    def tool_call(self, prompt: Prompt, *, until: float | None = None) -> ToolCall:
        """Make one call of the policy's that must use its tool; its prompt is cached behind the system text.

        It is given up at `until`, on the monotonic clock, by a `CallTimeoutError`.

        Raises:
            GatewayError: as `ask` does.
            OSError: as `ask` does.
        """

        def make(models: ModelClient, call: ModelCall) -> ToolCall:
            return models.tool_call(
                [prompt.parts],
                model=call.model,
                max_tokens=call.max_tokens,
                system=Text(prompt.system, ends_prefix=True),
                tool=prompt.tool,
                until=until,
            )

        return self.call(prompt.purpose, make)

    def tool_calls(self, prompts: Sequence[Prompt], *, until: float | None = None) -> list[ToolCall]:
        """Make such calls side by side, those that wait last, and return their replies; the first that fails ends all.

        Of one that is given up at `until`, or for which there is no money then, the reply is cut, unless all are.
        """
        make = partial(self.tool_call, until=until)
        if len(prompts) == 1:
            return [make(prompts[0])]
        self._open()
        pool = ThreadPoolExecutor(len(prompts))
        try:
            calls = [pool.submit(copy_context().run, make, prompt) for prompt in prompts if not prompt.waits]
            wait(calls, return_when=FIRST_COMPLETED)
            calls += [pool.submit(copy_context().run, make, prompt) for prompt in prompts if prompt.waits]
            lost = (CallTimeoutError, BudgetExceededError) if until is not None else (CallTimeoutError,)
            replies = [_if_it_came(call, lost=lost) for call in calls]
            if not any(replies):
                raise CallTimeoutError
            return [reply or ToolCall({}, Usage(), is_cut=True) for reply in replies]
        except BaseException as error:
            self.abort(error)
            raise
        finally:
            pool.shutdown(wait=False)

    def ask(self, name: str, make: Callable[[ModelClient], ResultT]) -> ResultT:
        """Make one model call, recorded under a name, and retry it as the retry table says.

        Raises:
            GatewayError: whatever the table leaves to the attempt.
            OSError: the operator's fault: its work could not be stored, so nothing was asked.
        """
        models, tries = self._open(), 0  # before the check: from here on, `abort` finds them
        while True:
            self.check()
            tries += 1
            try:
                with self.step(f"model:{name}", kind=traces.Kind.CLIENT) as facts:
                    result = make(models)
                    facts["prompt"] = models.prompt_version
                return result
            except GatewayError as error:
                left = self.limits.soft_seconds - (time.monotonic() - self.began)
                retry = decide_call(error, tries=tries, left_seconds=left)
                if retry is None:
                    raise
            self.report(EventKind.PROGRESS, {"text": "the provider is busy; trying again", "wait": retry.delay_seconds})
            dense.pause(retry.delay_seconds)

    def _open(self) -> ModelClient:
        if not self.has_called:
            self._check_room()
        return self.models

    def _check_room(self) -> None:
        """Check that the content store takes what this attempt may write, before anything is paid for."""
        queue = QueueName(self.claim.attempt.queue)
        if QUEUES[queue].writes_site or queue is QueueName.STEPS:
            self.content_store.check_room(self.limits.output_bytes)

    def store(self, do: Callable[[], ResultT]) -> ResultT:
        """Store paid work; where the store is full or away, again, as long as that leaves time for what has to follow.

        Raises:
            OSError: the operator's fault: it stayed so.
        """
        until = self._closes - STORE_PAUSE_SECONDS
        while True:
            try:
                return do()
            except OSError as error:
                if not is_storage_error(error) or time.monotonic() > until:
                    raise
                logger.warning("waits_for_content_store", exc_info=True)
            self.check()
            dense.pause(STORE_PAUSE_SECONDS)

    @property
    def _closes(self) -> float:
        """When only the time is left that storing, scanning and showing its work takes, on the monotonic clock."""
        return self.began + self.limits.soft_seconds - self.policy.agent.closing_seconds

    def was_gateway_away(self) -> bool:
        """Whether the gateway is away, or stood still during this attempt, and so took up its time."""
        return is_away(self.resources.gateway_url, within_seconds=time.monotonic() - self.began)

    def await_circuit(self, model: str) -> None:
        """Check a model's circuit, and the content store, before starting what costs more than a model call.

        Raises:
            ProviderBusyError: nobody's fault: it is open for longer than an attempt waits.
            OSError: the operator's fault: its work could not be stored.
        """
        self._check_room()
        wait = self.circuit_wait(model)
        if wait is not None and wait > MAX_WAIT_SECONDS:
            raise ProviderBusyError(f"{model} is open for the whole fleet", wait)

    def compute(
        self, work: Callable[Concatenate[Inputs, Values], ResultT], *values: Values.args, **named: Values.kwargs
    ) -> ResultT:
        """Compute what waits for nobody, with the attempt's inputs: in place, or in a child of a dense pool.

        `work` is a function of a module, so that it has a name there, and its arguments pickle.
        """
        steps: list[Step] = []
        try:
            inputs = self if dense.current() is None else Inputs(claim=self.claim, content_store=self.content_store)
            return dense.compute(steps, work, inputs, *values, **named)
        finally:
            for step in steps:
                self.report_step(step.name, seconds=step.seconds)

    @contextmanager
    def step(self, name: str, *, kind: traces.Kind = traces.Kind.INTERNAL) -> Iterator[dict[str, Any]]:
        """Time and trace one visible step of the job; what is put into the yielded facts is recorded with it."""
        started, facts = time.monotonic(), dict[str, Any]()
        try:
            with traces.span(name, kind=kind):
                yield facts
        finally:
            self.report_step(name, seconds=time.monotonic() - started, **facts)

    def watcher(self) -> Callable[[], None]:
        """Return a callback that checks periodically, while a command runs in a box, that the job is still wanted.

        A command may be silent for minutes, and a cancelled job must not be worked on that long.
        """
        asked = time.monotonic()

        def watch() -> None:
            nonlocal asked
            if time.monotonic() - asked >= CHECK_SECONDS:
                asked = time.monotonic()
                self.check()

        return watch

    def closing_watcher(self) -> Callable[[], None]:
        """Return such a callback for what paid work waits for: it also ends the wait while its work can still be kept.

        What it returns raises `SoftTimeLimit`.
        """
        check = self.watcher()

        def watch() -> None:
            if time.monotonic() > self._closes:
                raise SoftTimeLimit
            check()

        return watch

    def enter(self, box: Box, *, token: str | None = None) -> None:
        """Work in a box from now on, and record whether it was warm (H-075).

        `token`, of the box's standby session, becomes this attempt's.

        Raises:
            FencedError: nobody's fault: the job was taken away.
        """
        self.bind_egress(box.egress.address, token)
        if token is not None:
            self.tokens.append(token)
        self.report(EventKind.BOX, {"queue": self.claim.attempt.queue, "warm": box.is_warm})

    def leave(self) -> None:
        """Revoke the attempt's token before its box goes: this attempt calls no model any more.

        Raises:
            FencedError: nobody's fault: the job was taken away.
        """
        self.bind_egress(None, None)

    def report_step(self, name: str, *, seconds: float, **facts: Any) -> None:
        """Record one finished step."""
        self.report(EventKind.STEP, {"step": name, "seconds": round(seconds, 3), **facts})
