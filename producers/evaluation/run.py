"""Runs cases through a whole installation, from router to preview, in parallel and under one budget."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml
from pydantic import BaseModel
from sqlmodel import col, select

from gateway.fake_provider.config import FakeProviderConfig, read_log
from ledger.tables import Call, Job, Release
from producers.evaluation.browser import Browser, differences, write_pictures
from producers.evaluation.cases import Case, Files, Reply, Round, Then, check, digest_of, site_directory
from producers.evaluation.judge import Judge, Judgement
from producers.local.embedded import Account, Embedded, Options
from producers.local.preparation import TENANT
from producers.use_cases.sites import Sites
from routing.jobs import Reason
from routing.policy.platform import Policy, load_policy, parse_policy
from routing.policy.prices import NANOUSD_PER_USD
from sites.content_store import ContentStore
from sites.releases import manifest_of

OPEN = frozenset({"received", "debating", "queued", "running", "scanning", "publishing"})
RIGHT_END = {"tools": "answered", "answer": "answered", "unchanged": "answered", "clarify": "clarifying"}
"""By route; any other ends in a preview."""
_CREATE = "model:spec_create"
_EDIT = "model:spec_edit"
_EDITS = (_EDIT, _CREATE, "model:patch_edit", "model:patch_built")
RECORDED = ("recorded", "replayed", "site-proofreading")
"""The fake provider's rules that play recorded replies; a proofreader of whom none is recorded found nothing."""
SPENT, CUT_OFF = "the budget is spent", "the budget cut it off"
"""Why a case is left for a run that goes on with more money."""
_LOOK_SECONDS = 0.1
_LONGEST_SECONDS = 600.0
_CLOCK_SECONDS = 0.005
"""How exactly the ledger notes when a call ended and what it took."""


class StepResult(BaseModel, frozen=True):
    """What became of one request or answer of a case."""

    job: UUID | None = None
    state: str = ""
    reason: str | None = None
    detail: str | None = None
    route: str = ""
    """Where it was done."""
    wanted: str = ""
    findings: tuple[str, ...] = ()
    """What is not as it should be; empty for a right result."""
    calls: int = 0
    tries: int = 0
    """Edits that a model wrote, over all tiers."""
    models: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    """The prompts of its calls with their versions, as the job's record names them: `spec_edit@1a2b3c4d`."""
    cost_nanousd: int = 0
    seconds: float = 0.0
    digest: str = ""
    """Of the files of its result; empty without any."""
    said: str = ""
    """The answer, the question to the owner, or the report."""
    judgement: Judgement | None = None
    """What the judging model thinks of it."""
    pictures: tuple[str, ...] = ()
    """File names of pictures of the first page that looks different, before and after."""

    @property
    def is_repaired(self) -> bool:
        """Whether it took more than one try of a model."""
        return self.tries > 1

    @property
    def is_refused(self) -> bool:
        """Whether it ended without the result that was wanted."""
        return self.state != RIGHT_END.get(self.wanted, "awaiting_approval")


class CaseResult(BaseModel, frozen=True):
    """What became of a case."""

    id: str
    kind: str
    lang: str
    steps: tuple[StepResult, ...] = ()
    skipped: str = ""
    """Why it did not run, or not to its end."""

    @property
    def is_passed(self) -> bool:
        """Whether every step came out right."""
        return not self.skipped and all(not step.findings for step in self.steps)

    @property
    def is_first_try(self) -> bool:
        """Whether no step needed a second try of a model."""
        return self.is_passed and not any(step.is_repaired for step in self.steps)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How cases are run."""

    account: Account | None = None
    """At a real provider; None for the recorded replies."""
    model: str | None = None
    """For every call, instead of the policy's."""
    policy: Path | None = None
    budget_usd: float | None = None
    """For all cases together; None for no limit but the policy's."""
    recorded: Path | None = None
    """Recorded calls that are replayed instead of the cases' replies."""
    judge: str | None = None
    """A model that judges the results, at the same account."""
    jobs: int = 4
    cases: tuple[Path, ...] = ()
    """Where the cases come from, besides the shipped ones."""
    sites: Path | None = None
    """A directory of sites besides those."""


@dataclass
class Share:
    """What one case may spend of a run's money, in nanodollars."""

    nanousd: int
    is_short: bool
    """Whether the run's budget gives it less than its own limit."""
    spent: int = 0

    def was_cut(self, reason: str | None) -> bool:
        """Whether it is the run's budget that ended a job of the case for a reason."""
        return self.is_short and reason == Reason.COST_CAP


class Purse:
    """The money of a run: what a case may spend is taken before it begins, and what it left is put back."""

    def __init__(self, budget_usd: float | None) -> None:
        self._whole = None if budget_usd is None else round(budget_usd * NANOUSD_PER_USD)
        self._left = self._whole
        self._changed = threading.Condition()
        self._taken = 0

    @contextmanager
    def take(self, limit: int) -> Iterator[Share | None]:
        """Yield a share, of a case's own limit or else the whole budget, or None where too little is left for it.

        It waits while other cases hold money that they may put back.
        """
        wanted = limit if self._whole is None else min(limit, self._whole)
        with self._changed:
            while self._left is not None and self._left < wanted and self._taken:
                self._changed.wait()
            if self._left is not None and self._left < wanted:
                yield None
                return
            self._taken += 1
            self._left = None if self._left is None else self._left - wanted
        share = Share(wanted, is_short=wanted < limit)
        try:
            yield share
        finally:
            with self._changed:
                self._taken -= 1
                self._left = None if self._left is None else self._left + wanted - share.spent
                self._changed.notify_all()


def policy_with_model(policy: Path | None, model: str | None, *, home: Path) -> Path | None:
    """Return the policy to run with: the given one, or a copy in `home` with one model for every call and agent.

    Raises:
        PolicyError: the caller's fault: the model has no price or no speed.
    """
    if model is None:
        return policy
    fields = load_policy(policy).model_dump(mode="json")
    for caller in (*fields["calls"].values(), *fields["agents"].values()):
        caller["model"] = model
    text = yaml.safe_dump(fields)
    parse_policy(text, source=f"the policy with {model}")
    home.mkdir(parents=True, exist_ok=True)
    (path := home / "policy.yaml").write_text(text, encoding="utf-8")
    return path


def edits_of(events: Iterable[Mapping[str, Any]]) -> list[tuple[str, float, float]]:
    """Return the edits that a model wrote, as `count_tries` reads them.

    A call that asked to see a file is none, nor is one that left all to the next tier.
    """
    edits: list[tuple[str, float, float]] = []
    for event in events:
        data = event["data"]
        if event["kind"] == "step" and data.get("step") in _EDITS:
            ended = datetime.fromisoformat(event["at"]).timestamp()
            edits.append((f"{data['step']}@{data.get('prompt', '')}", ended, float(data.get("seconds") or 0)))
        elif edits and ("asked_to_see" in data or _hands_on(event)):
            del edits[-1]
    return edits


def _hands_on(event: Mapping[str, Any]) -> bool:
    return bool(event["kind"] == "escalated" and event["data"]["reason"] == Reason.BEYOND_TIER)


def count_tries(calls: Iterable[tuple[str, float, float]]) -> int:
    """Return how many calls, by step, when they ended and how long they took, began after those before had ended.

    Calls side by side, as for the parts of a long translation, are one try, and so is what follows it by another prompt
    (`STEP@PROMPT`) of its step, as an edit follows a translation, or as a translation follows a new site. Times are in
    seconds.
    """
    tries, ended, before = 0, float("-inf"), ""
    for step, end, seconds in sorted(calls, key=lambda call: call[1] - call[2]):
        is_next = end - seconds > ended - _CLOCK_SECONDS
        (name, _, prompt), (name_before, _, prompt_before) = step.partition("@"), before.partition("@")
        follows = (name_before, name) == (_CREATE, _EDIT) or (name == name_before and prompt != prompt_before)
        tries += is_next and not follows
        ended, before = max(ended, end), step
    return tries


class Runner:
    """Runs cases on one installation."""

    def __init__(self, embedded: Embedded, plan: Plan) -> None:
        self._plan = plan
        self._policy: Policy = load_policy(embedded.options.policy)
        self._purse = Purse(plan.budget_usd)
        self._ledger = embedded.open_ledger(pool_size=plan.jobs + 1)
        self._content_store = ContentStore(embedded.home / "content-store")
        self._sites = Sites(self._ledger, self._content_store, self._policy)
        self._has_boxes = not embedded.boxes.off
        self._request_log = embedded.request_log
        self._judging_model = (
            Judge(plan.account, plan.judge, self._policy.prices) if plan.account and plan.judge else None
        )
        self.browser: Browser | None = None
        """Opens the results; without one, nothing is said about their looks and scripts."""
        self.pictures: Path | None = None
        """Where to put its pictures of pages before and after; None for none."""
        self._http = embedded.open_api()

    def close(self) -> None:
        """Close its connections."""
        self._http.close()
        self._ledger.close()

    def run(self, cases: Sequence[Case], tell: Callable[[CaseResult], None]) -> list[CaseResult]:
        """Run cases, and tell of each as it ends."""

        def one(case: Case) -> CaseResult:
            result = self._run(case)
            tell(result)
            return result

        with ThreadPoolExecutor(self._plan.jobs) as pool:
            return list(pool.map(one, cases))

    def _run(self, case: Case) -> CaseResult:
        shown = {"id": case.id, "kind": case.kind, "lang": case.lang}
        if not self._has_boxes and any(step.route == "agent" for step in case.steps):
            return CaseResult(**shown, skipped="the code agent needs boxes")
        limit = round(self._policy.budgets.job_usd * NANOUSD_PER_USD) * sum(
            isinstance(step, Round) for step in case.steps
        )
        with self._purse.take(limit) as share:
            if share is None:
                return CaseResult(**shown, skipped=SPENT)
            steps = tuple(self._steps(case, cap_nanousd=share.nanousd))
            share.spent = sum(step.cost_nanousd for step in steps)
        return CaseResult(**shown, steps=steps, skipped=CUT_OFF if share.was_cut(steps[-1].reason) else "")

    def _steps(self, case: Case, *, cap_nanousd: int) -> Iterator[StepResult]:
        site = case.id
        if case.site is not None:
            directory = site_directory(case, beside=self._plan.cases, sites=self._plan.sites)
            self._sites.import_site(TENANT, site, directory, actor="pointsman eval")
            self._sites.set_profile(TENANT, site, case.profile)
        place = {"new_site": site} if case.new_site else {"site": site} if case.site else {}
        left, job = cap_nanousd, None
        for step in case.steps:
            budget = {} if self._plan.budget_usd is None else {"budget_usd": max(left, 1) / NANOUSD_PER_USD}
            if isinstance(step, Reply):
                answer = self._http.post(f"/v1/jobs/{job}/reply", json={"text": step.answer})
            elif job is None:
                body = {"prompt": step.request, **place, **step.options, **budget}
                answer = self._http.post("/v1/jobs", json=body)
            else:
                answer = self._http.post(f"/v1/jobs/{job}/revise", json={"text": step.request, **step.options})
            if not answer.is_success:
                yield StepResult(wanted=step.route, findings=(f"HTTP {answer.status_code}: {answer.text[:400]}",))
                return
            job = UUID(answer.json()["id"]) if not isinstance(step, Reply) else job
            assert job is not None
            result = self._judge(step, self._follow(job), name=case.id)
            left -= result.cost_nanousd
            yield result
            if result.is_refused:
                return

    def _follow(self, job: UUID) -> dict[str, Any]:
        """Return the job when it waits for its owner or has ended; the ledger is asked until then, at a tenth of it."""
        until = time.monotonic() + _LONGEST_SECONDS
        while True:
            with self._ledger.begin() as session:
                state = session.scalar(select(Job.state).where(col(Job.id) == job))
            if state not in OPEN or time.monotonic() > until:
                view: dict[str, Any] = self._http.get(f"/v1/jobs/{job}").json()
                is_asked = view["state"] == "clarifying" and (view["clarification"] or {}).get("is_pending")
                if time.monotonic() > until or not (is_asked or view["state"] in OPEN):
                    return view
            time.sleep(_LOOK_SECONDS)

    def _judge(self, step: Round | Reply, view: Mapping[str, Any], *, name: str) -> StepResult:
        before, after = (
            self._files(view["start_release_id"] or view["base_release_id"]),
            self._files(view["release_id"]),
        )
        asked = view["clarification"] if view["state"] == "clarifying" else None
        question = " ".join((asked["question"], *(option["label"] for option in asked["options"]))) if asked else ""
        report = str(view["result"].get("summary") or "")
        said = view["answer"] or question
        events = self._http.get(f"/v1/jobs/{view['id']}/events", params={"format": "json"}).json()
        steps = [event["data"] for event in events if event["kind"] == "step"]
        tries = count_tries(edits_of(events))
        prompts = {f"{data['step'].removeprefix('model:')}@{data['prompt']}" for data in steps if data.get("prompt")}
        unchanged = "unchanged" if view["state"] == "answered" and view["tier"] else ""
        route = "clarify" if view["state"] == "clarifying" else unchanged or view["tier"] or view["queue"]
        findings: list[str] = []
        pictures: tuple[str, ...] = ()
        judgement, judging = None, 0
        wanted = RIGHT_END.get(step.route, "awaiting_approval")
        if view["state"] != wanted:
            findings.append(f"came to {view['state']}, not {wanted}: {view['detail'] or view['reason'] or ''}")
        elif route != step.route:
            findings.append(f"was done by {route}, not {step.route}: {view['why']}")
        if view["state"] == wanted:
            findings += check(step.then, before, after if after else before, said=said, summary=report)
            looked, pictures = self._look(step.then, before, after, view, name=f"{name}-{view['round']}")
            findings += looked
            if self._judging_model is not None:
                shown = [(self.pictures / each).read_bytes() for each in pictures] if self.pictures else []
                asked_for = step.request if isinstance(step, Round) else step.answer
                judgement, judging = self._judging_model.judge(
                    asked_for, before, after or before, said=said or report, pictures=shown
                )
        with self._ledger.begin() as session:
            calls = session.scalars(select(Call).where(col(Call.job_id) == UUID(view["id"]))).all()
            models, cost = tuple(sorted({call.model for call in calls})), sum(call.cost_nanousd for call in calls)
            findings += self._improvised({str(call.id) for call in calls})
        return StepResult(
            job=UUID(view["id"]),
            state=view["state"],
            reason=view["reason"],
            detail=view["detail"],
            route=route,
            wanted=step.route,
            findings=tuple(findings),
            calls=len(calls),
            tries=tries,
            models=models,
            prompts=tuple(sorted(prompts)),
            cost_nanousd=cost + judging,
            seconds=view["seconds"],
            digest=digest_of(after),
            said=said or report,
            judgement=judgement,
            pictures=pictures,
        )

    def _look(
        self, then: Then, before: Files, after: Files, view: Mapping[str, Any], *, name: str
    ) -> tuple[list[str], tuple[str, ...]]:
        """Return what is wrong with a result in a browser, and the file names of pictures."""
        if self.browser is None or not after:
            return [], ()
        looks = self.browser.compare(before, after)
        pictures = write_pictures(looks, self.pictures / name) if self.pictures is not None else ()
        return [*differences(then, looks), *self.browser.visit(view["preview_url"], then.visits)], pictures

    def _improvised(self, calls: set[str]) -> Iterator[str]:
        """Yield what the fake provider had no recorded reply to: it says nothing about a model."""
        for call in read_log(self._request_log) if calls else ():
            if call.call in calls and call.rule not in RECORDED:
                yield f"no reply is recorded for a call with {', '.join(call.tools) or 'no tools'}"

    def _files(self, release: str | None) -> Files:
        if release is None:
            return {}
        with self._ledger.begin() as session:
            row = session.get(Release, UUID(release))
            assert row is not None
            return self._content_store.read_tree(manifest_of(row))


@contextmanager
def installed_for(plan: Plan, *, home: Path, environment: Mapping[str, str]) -> Iterator[Runner]:
    """Start an installation for a plan, and stop it in the end.

    Raises:
        PolicyError, InstallationError: the caller's fault.
    """
    options = Options(
        home=home,
        account=plan.account,
        fake_provider=FakeProviderConfig(speed="max", cases=plan.cases, recorded=plan.recorded),
        policy=policy_with_model(plan.policy, plan.model, home=home),
        api_port=0,
        concurrency=max(2, min(plan.jobs, os.cpu_count() or 2)),
    )
    with Embedded(options, base_environment=environment) as embedded, closing(Runner(embedded, plan)) as runner:
        yield runner
