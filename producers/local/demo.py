"""`make demo`: run the product end to end and check every outcome; all printed figures are measured.

It starts what `pointsman up` starts, and submits over HTTP, Celery and CLI.
"""

from __future__ import annotations

import json
import os
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
from celery import Celery
from prometheus_client.parser import text_string_to_metric_families

from gateway.fake_provider.config import FakeProviderConfig
from producers.commands.context import out, print_table
from producers.local import demo_ticket
from producers.local.demo_files import agent_files, heavy_files
from producers.local.embedded import Embedded, Options
from producers.local.preparation import TENANT
from producers.servers import KEY, URL
from routing.jobs import Reason
from routing.policy.platform import platform_policy
from routing.policy.prices import format_usd, nanousd_of
from routing.queues import QUEUES

SITES = ("harbour", "garden", "studio", "workshop", "cellar", "kiosk")
"""Copies of the shipped site: jobs on different sites run in parallel."""
HEAVY_SITE = "gallery"
"""A site whose picture alone exceeds tier 1's output limit."""
AGENT_SITE = "leaflet"
"""A single page, which a code agent splits into several."""


@dataclass
class Case:
    """One job of the demo, with its expected end."""

    name: str
    source: str
    body: Mapping[str, object]
    expected: str
    """The expected state: final, or `awaiting_approval`."""
    cancel_after_seconds: float | None = None
    """Cancelled after running for this long."""
    ran_at: float | None = None
    job_id: UUID | None = None
    view: dict[str, object] = field(default_factory=dict)
    problem: str = ""
    preview: str = "-"
    """Size of the previewed page."""

    @property
    def state(self) -> str:
        """Its state as last seen."""
        return str(self.view.get("state", "not submitted"))


_WAITS = "awaiting_approval"
_CASES: Sequence[Any] = (
    ("ticket", "http", {"prompt": demo_ticket.TICKET, "project": demo_ticket.PROJECT}, "published"),
    ("code agent", "http", {"prompt": "Convert to a multi-page site with shared nav", "site": AGENT_SITE}, _WAITS),
    ("question", "http", {"prompt": "What is a sourdough starter?"}, "answered"),
    ("trivial", "cli", {"prompt": "date -u"}, "answered"),
    ("direct 1", "http", {"prompt": "Change the hero heading to 'Bread since 1932'", "site": "harbour"}, _WAITS),
    ("direct 2", "celery", {"prompt": "Make the primary colour #1d4ed8", "site": "garden"}, _WAITS),
    ("direct 3", "cli", {"prompt": "Change the phone number to +32 9 123 45 67", "site": "studio"}, _WAITS),
    (
        "model",
        "http",
        {"prompt": "Add a short FAQ about opening hours and how to order ahead", "site": "workshop"},
        _WAITS,
    ),
    ("debated", "http", {"prompt": "Remove the testimonials section", "site": "cellar"}, _WAITS),
    ("patch", "cli", {"prompt": "Add a hover effect to the cards", "site": "kiosk"}, _WAITS),
    (
        "new site",
        "celery",
        {
            "prompt": "Create a site for Ada's Bikes, a repair shop in Ghent that fixes city "
            "bikes in a day and sells restored ones",
            "new_site": "adas-bikes",
        },
        _WAITS,
    ),
    ("output limit", "http", {"prompt": "Change the page title to 'Gallery'", "site": HEAVY_SITE}, "output_exceeded"),
    (
        "cost cap",
        "http",
        {"prompt": "What do our pages say about prices and classes?", "site": "harbour", "budget_usd": 0.008},
        "budget_exceeded",
    ),
    ("cancelled", "http", {"prompt": "Explain how bread rises, at length [rehearse:slow]"}, "cancelled", 1.5),
    ("bad request", "http", {"prompt": "x" * 33 * 1024, "site": "harbour"}, "refused"),
    ("bad request", "celery", {"prompt": "Change the heading to 'Hi'", "site": "no-such-site"}, "rejected"),
)
"""Name, source, body, expected end and, if it is cancelled, when. What takes longest is first."""
_IN_BOXES = ("ticket", "code agent")


def cases(*, has_boxes: bool) -> list[Case]:
    """Return the demo's jobs, without boxes those that need none."""
    return [Case(*row) for row in _CASES if has_boxes or row[0] not in _IN_BOXES]


WAIT_SECONDS = 90.0
_COUNTED_SECONDS = 10.0
SHOWN_QUEUES = tuple(name for name, queue in QUEUES.items() if not queue.leaves_open)
_PROSE_COLUMNS = 100
_SHOWN_PROMPT_CHARS = 60
_OPEN = frozenset({"received", "clarifying", "debating", "queued", "running", "scanning", "publishing"})


def run_demo(environment: Mapping[str, str], *, keep: Path | None = None) -> bool:
    """Run the demo; returns whether all checks passed."""
    with tempfile.TemporaryDirectory(prefix="pointsman-demo-") as scratch:
        home = keep or Path(scratch) / "home"
        out.print("[bold]Pointsman: the main job, end to end[/]\n", markup=True)
        _prose(
            "A job in plain words is routed by rules before any model is called, done by the least machinery that "
            "can do it under hard limits of time, money and output, scanned, previewed, approved, and only then "
            "published."
        )
        out.print("\nStarting PostgreSQL, Valkey, gateway, API, dispatcher, exporter, workers, fake provider ...")
        started = time.monotonic()
        fake_provider = FakeProviderConfig(faults=True)
        repositories = Path(scratch) / "repositories"
        demo_ticket.make_repository(repositories)
        options = Options(
            home=home, fake_provider=fake_provider, api_port=0, idle_children=0, repositories=repositories
        )
        with Embedded(options, base_environment=environment) as embedded:
            _import_sites(embedded, Path(scratch))
            assert embedded.supervisor is not None
            programs = embedded.supervisor.pids()
            out.print(
                f"{len(programs)} processes and PostgreSQL run after {time.monotonic() - started:.0f} s; "
                f"{len(SITES) + 2} sites are imported. Submitting:"
            )
            if embedded.boxes.off:
                _prose(f"  The ticket and the job for a code agent are left out: {embedded.boxes.off}.", hang="  ")
            is_good = Demo(embedded, repositories).run()
        left = [name for name, pid in programs.items() if _is_alive(pid)]
        verdict = "All was as it should be." if is_good and not left else "Not all was as it should be."
        out.print(
            f"\nStopped after {time.monotonic() - started:.0f} s; left running: {', '.join(left) or 'nothing'}. "
            f"{verdict}"
        )
        if keep is None:
            out.print("To keep it running, open the previews and try your own prompts: make up")
    return is_good and not left


def _is_alive(group: int) -> bool:
    """Whether a process of this group, such as a pool child, still runs."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _prose(text: str, *, hang: str = "") -> None:
    width = min(out.width, _PROSE_COLUMNS)
    out.print(textwrap.fill(text, width, subsequent_indent=hang))


def _import_sites(embedded: Embedded, scratch: Path) -> None:
    for name in SITES:
        embedded.import_site(name)
    for name, files in ((HEAVY_SITE, heavy_files()), (AGENT_SITE, agent_files())):
        directory = scratch / name
        directory.mkdir()
        for file, data in files.items():
            (directory / file).write_bytes(data)
        embedded.import_site(name, directory)


def _shown(prompt: object) -> str:
    words = " ".join(str(prompt).split())
    return words if len(words) <= _SHOWN_PROMPT_CHARS else f"{words[: _SHOWN_PROMPT_CHARS - 1]}… ({len(words)} chars)"


def _reasons(case: Case) -> str:
    detail = case.view.get("detail")
    reasons = [str(reason).rstrip(".") for reason in (case.view.get("why"), detail) if reason and reason != "done"]
    return ". ".join([*reasons, ""]).rstrip()


def _figures(case: Case) -> tuple[str, ...]:
    bill, seconds = case.view.get("bill"), case.view.get("seconds")
    return (
        case.name,
        case.source,
        str(case.view.get("tier") or case.view.get("queue") or "-"),
        case.state,
        f"{seconds:7.1f}" if isinstance(seconds, float) else f"{'-':>7}",
        f"${bill['spent_usd']}" if isinstance(bill, dict) else "-",
        case.preview,
    )


class Demo:
    """Drives an installation from outside, as its users do."""

    def __init__(self, embedded: Embedded, repositories: Path) -> None:
        self._embedded = embedded
        self._repositories = repositories
        self._http = embedded.open_api()
        self._started = time.monotonic()
        self._cases = cases(has_boxes=not embedded.boxes.off)
        self._problems: list[str] = []

    def run(self) -> bool:
        """Submit the jobs, follow them, and check the results."""
        file = demo_ticket.project_file(self._repositories)
        self._http.post("/v1/projects", json={"name": demo_ticket.PROJECT, "file": file}).raise_for_status()
        for case in self._cases:
            self._submit(case)
        self._follow()
        self._show()
        steps = (self._check_live, self._check_ticket, self._check_bill, self._check_metrics)
        problems = self._problems + [f"{case.name}: {case.problem}" for case in self._cases if case.problem]
        if not self._problems:
            problems += [problem for step in steps if (problem := step())]
        for problem in problems:
            out.print(f"NOT AS IT SHOULD BE: {problem}", style="bold red")
        self._http.close()
        return not problems

    def _submit(self, case: Case) -> None:
        sources: Mapping[str, Callable[[Case], None]] = {
            "http": self._by_http,
            "celery": self._by_celery,
            "cli": self._by_cli,
        }
        sources[case.source](case)
        self._say(case, f"by {case.source}: {_shown(case.body['prompt'])}")

    def _by_http(self, case: Case) -> None:
        answer = self._http.post("/v1/jobs", json=case.body)
        if answer.status_code == httpx2.codes.ACCEPTED:
            case.job_id = UUID(answer.json()["id"])
            return
        first = answer.json()["errors"][0]
        case.view = {"state": "refused", "detail": f"HTTP {answer.status_code}: {first['field']} {first['rule']}"}

    def _by_celery(self, case: Case) -> None:
        """Submit like a foreign client that knows only the broker's URL and the task's name."""
        case.job_id = uuid4()
        client = Celery(broker=self._embedded.broker_url)
        client.send_task(
            "pointsman.submit", kwargs={**case.body, "tenant": TENANT}, queue="intake", task_id=str(case.job_id)
        )
        client.close()

    def _by_cli(self, case: Case) -> None:
        import subprocess
        import sys

        argv = [sys.executable, "-m", "producers.cli", "submit", str(case.body["prompt"]), "--json"]
        if "site" in case.body:
            argv += ["--site", str(case.body["site"])]
        own = {URL: self._embedded.api_url, KEY: self._embedded.api_key, "no_proxy": "127.0.0.1"}  # as beside `up`
        environment = {**self._embedded.environment, **own}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            case.problem = done.stderr.strip()
            return
        case.job_id = UUID(json.loads(done.stdout)["id"])

    def _say(self, case: Case, text: str) -> None:
        line = f"  {time.monotonic() - self._started:5.1f} s  {case.name:<13} {text}"
        is_cut = out.is_terminal and len(line) > out.width  # the table shows the whole text later
        out.print(f"{line[: out.width - 1]}…" if is_cut else line)

    def _follow(self) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            for case in self._cases:
                self._look(case)
            if self._died():
                return
            if all(case.job_id is None or (case.view and case.state not in _OPEN) for case in self._cases):
                break
            time.sleep(0.3)
        for case in self._cases:
            if case.state != case.expected and not case.problem:
                case.problem = f"came to {case.state}, not {case.expected}: {case.view.get('detail') or ''}"

    def _died(self) -> bool:
        assert self._embedded.supervisor is not None
        for name, log in self._embedded.supervisor.dead().items():
            self._problems.append(f"the process {name} died:\n{log}")
        return bool(self._problems)

    def _look(self, case: Case) -> None:
        if case.job_id is None or (case.view and case.state not in _OPEN):
            return
        answer = self._http.get(f"/v1/jobs/{case.job_id}")
        if answer.status_code != httpx2.codes.OK:
            return  # the Celery intake has not submitted it yet
        before = case.state
        case.view = answer.json()
        if case.state != before:
            self._say(case, f"{case.state}  {case.view.get('detail') or ''}".rstrip())
        if case.state == "running" and case.cancel_after_seconds is not None:
            self._cancel_when_due(case, case.cancel_after_seconds)

    def _cancel_when_due(self, case: Case, seconds: float) -> None:
        case.ran_at = case.ran_at or time.monotonic()
        if time.monotonic() - case.ran_at >= seconds:
            case.cancel_after_seconds = None
            self._http.post(f"/v1/jobs/{case.job_id}/cancel")
            self._say(case, "cancel requested")

    def _show(self) -> None:
        out.print("\n[bold]What each job did[/], and what it cost:\n", markup=True)
        for case in self._cases:
            case.preview = self._fetch_preview(case)
        print_table(
            ("job", "source", "tier", "end", "seconds", "dollars", "preview"), [_figures(case) for case in self._cases]
        )
        out.print("\nWhy it went there, and why it ended:\n")
        for case in self._cases:
            _prose(f"{case.name:<13} {_reasons(case)}", hang=" " * 14)
        self._show_limits()

    def _fetch_preview(self, case: Case) -> str:
        url = case.view.get("preview_url")
        if not url:
            return "-"
        answer = httpx2.get(str(url), trust_env=False)
        if answer.status_code != httpx2.codes.OK:
            self._problems.append(f"{case.name}: its preview answers {answer.status_code}")
        return f"{len(answer.content)} B"

    def _show_limits(self) -> None:
        policy = platform_policy()
        out.print("\nThe limits of a job on each queue (soft/hard):\n")
        print_table(
            ("queue", "time", "models", "output"),
            [
                (
                    queue.value,
                    f"{limits.soft_seconds:g}/{limits.hard_seconds:g} s",
                    format_usd(limits.llm_nanousd),
                    f"{limits.output_bytes / 1024:g} KiB",
                )
                for queue in SHOWN_QUEUES
                for limits in (policy.queues[queue],)
            ],
        )
        budgets = policy.budgets
        job, tenant, fleet = (
            format_usd(nanousd_of(usd)) for usd in (budgets.job_usd, budgets.tenant_day_usd, budgets.fleet_day_usd)
        )
        _prose(f"Over all its tiers a job may cost {job}, a tenant {tenant} a day, the fleet {fleet} a day.")

    def _check_live(self) -> str | None:
        """Approve the first direct edit, fetch it live, roll back, and fetch the old page."""
        case = next(case for case in self._cases if case.name == "direct 1")
        live = f"{self._embedded.pages_url}/live/{TENANT}/harbour/"
        before = httpx2.get(live, trust_env=False).text
        out.print("\n[bold]Approve, publish, fetch, roll back, fetch[/]:\n", markup=True)
        url = case.view.get("preview_url")
        if not url:
            return "the first direct edit has no preview"
        preview = httpx2.get(str(url), trust_env=False)
        self._http.post(f"/v1/jobs/{case.job_id}/approve")
        deadline = time.monotonic() + 15
        while (state := self._http.get(f"/v1/jobs/{case.job_id}").json()["state"]) == "publishing":
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        after = httpx2.get(live, trust_env=False).text
        rolled = self._http.post("/v1/sites/harbour/rollback")
        again = httpx2.get(live, trust_env=False).text
        wanted = "Bread since 1932"
        checks = {
            f"the preview shows '{wanted}'": wanted in preview.text,
            "before approval the live page did not": wanted not in before,
            "the job is published": state == "published",
            "the live page is the preview, byte for byte": after == preview.text and wanted in after,
            "after the rollback it is the old page, byte for byte": rolled.is_success and again == before,
        }
        for text, is_true in checks.items():
            out.print(f"  {'yes' if is_true else 'NO '}  {text}")
        return None if all(checks.values()) else "approve, publish or rollback"

    def _check_ticket(self) -> str | None:
        """Look into the ticket's repository."""
        case = next((case for case in self._cases if case.name == "ticket"), None)
        return demo_ticket.show(self._steps_of(case), self._repositories) if case is not None else None

    def _steps_of(self, case: Case) -> list[dict[str, Any]]:
        return list(self._http.get(f"/v1/runs/{case.job_id}").json()["steps"])

    def _check_bill(self) -> str | None:
        """Compare the jobs' bills with the fake provider's log, priced by the table.

        A reply that was cut is billed at its `max_tokens`: how much of it was written, nobody is told.
        """
        from gateway.fake_provider.config import booked_nanousd, read_log

        policy, log = platform_policy(), read_log(self._embedded.request_log)
        most = policy.calls["answer"].max_tokens
        logged = sum(booked_nanousd(call, policy.prices, max_tokens=most) for call in log)
        billed = 0
        for case in self._cases:
            bill = case.view.get("bill")
            billed += int(bill["spent_nanousd"]) if isinstance(bill, dict) else 0
        is_equal = logged == billed
        out.print(
            f"  {'yes' if is_equal else 'NO '}  the bills add up to what the provider logged, and may have written of "
            f"the cancelled reply: {format_usd(billed, digits=6)} and {format_usd(logged, digits=6)}"
        )
        return None if is_equal else "the bills differ from the provider's log"

    def _check_metrics(self) -> str | None:
        """Compare the exporter's counts with the jobs in the API; a refused message never was a job, a step is one.

        An event is counted once every older transaction has ended.
        """
        ended = self._ended()
        deadline = time.monotonic() + _COUNTED_SECONDS
        while (counted := self._counted()) != ended and time.monotonic() < deadline:
            time.sleep(0.5)
        is_equal = counted == ended
        shown = ", ".join(f"{number} {state}" for state, number in sorted(counted.items()) if number)
        out.print(f"  {'yes' if is_equal else 'NO '}  the metrics count what ended: {shown}")
        return None if is_equal else f"the metrics count {dict(counted)}, the API shows {dict(ended)}"

    def _counted(self) -> Counter[str]:
        text = httpx2.get(f"{self._embedded.exporter_url}/metrics", trust_env=False).text
        counted: Counter[str] = Counter()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "pointsman_jobs_finished_total":
                    counted[sample.labels["state"]] += int(sample.value)
        return counted

    def _ended(self) -> Counter[str]:
        views = [self._http.get(f"/v1/jobs/{case.job_id}").json() for case in self._cases if case.job_id]
        ended = [view["state"] for view in views if view["is_final"] and view["reason"] != Reason.INVALID_REQUEST]
        tickets = [case for case in self._cases if case.name == "ticket"]
        tries = [done for case in tickets for step in self._steps_of(case) for done in step["executions"]]
        return Counter(ended + ["answered" for done in tries if done["status"] == "completed"])
