"""`make demo`: the product's main job, shown by doing it. Every figure it prints is read from the running installation.

It starts what `pointsman up` starts, submits through all three doors, and checks every outcome; what is not as it
should be makes it fail.
"""

from __future__ import annotations

import json
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID, uuid4

import httpx
from celery import Celery
from rich.console import Console
from rich.table import Table

from producers.commands.context import out
from producers.embedded import TENANT, Embedded, Options
from routing.policy import platform_policy
from routing.tiers import QueueName
from sandbox.rehearsal.config import RehearsalConfig

PATIENCE_SECONDS = 90.0
SITES = ("harbour", "garden", "studio", "workshop", "cellar")
"""The shipped site under four names: jobs on different sites run side by side."""
HEAVY_SITE = "gallery"
"""A site whose picture alone is above tier 1's output limit."""
_OPEN = frozenset({"received", "clarifying", "debating", "queued", "running", "scanning", "publishing"})


@dataclass
class Case:
    """One job of the demo, and how it should end."""

    name: str
    door: str
    body: Mapping[str, object]
    expected: str
    """The state it should come to: an end, or `awaiting_approval`."""
    cancel_after: float | None = None
    job_id: UUID | None = None
    seen: int = 0
    view: dict[str, object] = field(default_factory=dict)
    problem: str = ""

    @property
    def state(self) -> str:
        """Where it is."""
        return str(self.view.get("state", "not submitted"))


def cases() -> list[Case]:
    """Return the demo's jobs."""
    return [
        Case("question", "http", {"prompt": "What is a sourdough starter?"}, "answered"),
        Case("trivial", "cli", {"prompt": "date -u"}, "answered"),
        Case("direct 1", "http", {"prompt": "Change the hero heading to 'Bread since 1932'", "site": "harbour"},
             "awaiting_approval"),
        Case("direct 2", "celery", {"prompt": "Make the primary colour #1d4ed8", "site": "garden"},
             "awaiting_approval"),
        Case("direct 3", "cli", {"prompt": "Change the phone number to +32 9 123 45 67", "site": "studio"},
             "awaiting_approval"),
        Case("model", "http", {"prompt": "Add a short FAQ about opening hours and how to order ahead",
             "site": "workshop"}, "awaiting_approval"),
        Case("debated", "http", {"prompt": "Remove the testimonials section", "site": "cellar"}, "awaiting_approval"),
        Case("new site", "celery", {"prompt": "Create a site for Ada's Bikes, a repair shop in Ghent that fixes city "
             "bikes in a day and sells restored ones", "new_site": "adas-bikes"}, "awaiting_approval"),
        Case("output limit", "http", {"prompt": "Change the page title to 'Gallery'", "site": HEAVY_SITE},
             "output_exceeded"),
        Case(
            "cost cap", "http",
            {"prompt": "What do our pages say about prices and classes?", "site": "harbour", "budget_usd": 0.008},
            "budget_exceeded",
        ),
        Case("cancelled", "http", {"prompt": "Explain how bread rises, at length [rehearse:slow]"}, "cancelled",
             cancel_after=1.5),
        Case("bad request", "http", {"prompt": "x" * 33 * 1024, "site": "harbour"}, "refused"),
        Case("bad request", "celery", {"prompt": "Change the heading to 'Hi'", "site": "no-such-site"}, "rejected"),
    ]  # fmt: skip


def run_demo(environment: Mapping[str, str], *, keep: Path | None = None) -> bool:
    """Run the demo; returns whether everything was as it should be."""
    with tempfile.TemporaryDirectory(prefix="pointsman-demo-") as scratch:
        home = keep or Path(scratch) / "home"
        out.rule("Pointsman: the main job, end to end")
        out.print(
            "A job in plain words is routed by rules before any model is called, done by the least machinery that "
            "can do it under hard limits of time, money and output, scanned, previewed, approved, and only then "
            "published.\n"
        )
        started = time.monotonic()
        options = Options(home=home, rehearsal=RehearsalConfig(faults=True), api_port=0)
        with Embedded(options, base_environment=environment) as embedded:
            _import_sites(embedded, Path(scratch))
            assert embedded.supervisor is not None
            out.print(f"{len(embedded.supervisor.pids())} processes and PostgreSQL run after "
                      f"{time.monotonic() - started:.1f} s; six sites are imported. Submitting:")  # fmt: skip
            demo = Demo(embedded)
            is_good = demo.run()
        left = embedded.supervisor.pids() if embedded.supervisor else {}
        out.print(f"\nStopped; {len(left)} processes left. The whole demo took {time.monotonic() - started:.0f} s.")
    return is_good and not left


def _import_sites(embedded: Embedded, scratch: Path) -> None:
    for name in SITES:
        embedded.import_site(name)
    heavy = scratch / "heavy"
    heavy.mkdir()
    (heavy / "site.json").write_text(json.dumps(_HEAVY_SPEC))
    (heavy / "photo.png").write_bytes(_noise_png(900, 900))
    embedded.import_site(HEAVY_SITE, heavy)


_HEAVY_SPEC = {
    "root": "page",
    "elements": {
        "page": {"type": "Page", "props": {"title": "Photos"}, "children": ["hero"]},
        "hero": {"type": "Hero", "props": {"heading": "One large photo"}, "children": []},
    },
}


def _noise_png(width: int, height: int) -> bytes:
    """Return a valid PNG that does not compress: pseudo-random pixels from a fixed seed."""
    state, rows = 1, bytearray()
    for _ in range(height):
        rows.append(0)
        for _ in range(width * 3 // 4):
            state = (state * 1_103_515_245 + 12_345) & 0xFFFFFFFF
            rows += state.to_bytes(4, "big")
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes((8, 2, 0, 0, 0))
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(rows), 1)), (b"IEND", b""))
    body = b"".join(
        len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big") for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


def _short(text: object) -> str:
    words = " ".join(str(text or "").split())
    return words if len(words) <= 48 else f"{words[:47]}…"


class Demo:
    """Drives an installation from outside, as its users would."""

    def __init__(self, embedded: Embedded) -> None:
        self._embedded = embedded
        self._http = httpx.Client(
            base_url=embedded.api_url,
            headers={"authorization": f"Bearer {embedded.api_key}"},
            timeout=10,
            trust_env=False,
        )
        self._started = time.monotonic()
        self._cases = cases()
        self._problems: list[str] = []

    def run(self) -> bool:
        """Submit, follow, show, approve, publish, roll back."""
        for case in self._cases:
            self._submit(case)
        self._follow()
        self._show()
        steps = (self._check_live, self._check_bill, self._check_metrics)
        problems = self._problems + [f"{case.name}: {case.problem}" for case in self._cases if case.problem]
        if not self._problems:
            problems += [problem for step in steps if (problem := step())]
        for problem in problems:
            out.print(f"[bold red]NOT AS IT SHOULD BE[/] {problem}")
        self._http.close()
        return not problems

    def _submit(self, case: Case) -> None:
        doors: Mapping[str, Callable[[Case], None]] = {
            "http": self._by_http, "celery": self._by_celery, "cli": self._by_cli,
        }  # fmt: skip
        doors[case.door](case)
        shown = " ".join(str(case.body["prompt"]).split())
        self._say(case, f"submitted by {case.door}: {shown[:70]}{'...' if len(shown) > 70 else ''}")

    def _by_http(self, case: Case) -> None:
        answer = self._http.post("/v1/jobs", json=case.body)
        if answer.status_code == httpx.codes.ACCEPTED:
            case.job_id = UUID(answer.json()["id"])
            return
        first = answer.json()["errors"][0]
        case.view = {"state": "refused", "detail": f"HTTP {answer.status_code}: {first['field']} {first['rule']}"}

    def _by_celery(self, case: Case) -> None:
        """A client that knows the broker's URL and the task's name, and nothing of our code."""
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
        done = subprocess.run(argv, env=self._embedded.environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            case.problem = done.stderr.strip()
            return
        case.job_id = UUID(json.loads(done.stdout)["id"])

    def _say(self, case: Case, text: str) -> None:
        out.print(f"  {time.monotonic() - self._started:5.1f} s  {case.name:<13} {text}", markup=False)

    def _follow(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
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
        if answer.status_code != httpx.codes.OK:
            return  # the intake worker has not taken it in yet
        before = case.state
        case.view = answer.json()
        if case.state != before:
            self._say(case, f"{case.state}  {case.view.get('detail') or ''}".rstrip())
        is_due = case.cancel_after is not None and time.monotonic() - self._started > case.cancel_after + 4
        if is_due and case.state == "running":
            case.cancel_after = None
            self._http.post(f"/v1/jobs/{case.job_id}/cancel")
            self._say(case, "cancel requested")

    def _show(self) -> None:
        table = Table("job", "door", "tier", "why there", "end", "why it ended", box=None, pad_edge=False)
        table.add_column("seconds", justify="right")
        table.add_column("dollars", justify="right")
        for case in self._cases:
            bill = case.view.get("bill")
            seconds = case.view.get("seconds")
            table.add_row(
                case.name, case.door, str(case.view.get("tier") or case.view.get("queue") or "-"),
                _short(case.view.get("why")), case.state, _short(case.view.get("detail")),
                f"{seconds:.1f}" if isinstance(seconds, float) else "-",
                f"${bill['spent_usd']}" if isinstance(bill, dict) else "-",
            )  # fmt: skip
        out.print("\nWhat each job did:")
        Console(width=max(out.width, 150)).print(table)
        out.print()
        self._show_limits()
        out.print()
        for case in self._cases:
            if url := case.view.get("preview_url"):
                out.print(f"  preview of {case.name}: {str(url)[:90]}...", markup=False)

    def _show_limits(self) -> None:
        policy = platform_policy()
        for queue in (QueueName.ANSWER, QueueName.SPEC, QueueName.PATCH, QueueName.AGENT):
            limits = policy.queues[queue]
            size = limits.output_bytes / 1_048_576
            out.print(f"  limits of {queue.value:<7} {limits.soft_seconds:g}/{limits.hard_seconds:g} s, "
                      f"${limits.llm_usd:.2f} of model calls, {size:g} MiB of output")  # fmt: skip

    def _check_live(self) -> str | None:
        """Approve the first direct edit, see it live, roll back, see the old page again."""
        case = next(case for case in self._cases if case.name == "direct 1")
        live = f"/live/{TENANT}/harbour/"
        before = self._http.get(live).text
        out.print("\nApprove, publish, fetch, roll back, fetch:")
        url = case.view.get("preview_url")
        if not url:
            return "the first direct edit has no preview"
        preview = httpx.get(str(url), trust_env=False)
        self._http.post(f"/v1/jobs/{case.job_id}/approve")
        deadline = time.monotonic() + 15
        while (state := self._http.get(f"/v1/jobs/{case.job_id}").json()["state"]) == "publishing":
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        after = self._http.get(live).text
        rolled = self._http.post("/v1/sites/harbour/rollback")
        again = self._http.get(live).text
        wanted = "Bread since 1932"
        checks = {
            f"the preview shows '{wanted}'": wanted in preview.text,
            "before approval the live page did not": wanted not in before,
            "the job is published": state == "published",
            "the live page is the preview, byte for byte": after == preview.text and wanted in after,
            "after the rollback it is the old page, byte for byte": rolled.is_success and again == before,
        }
        for text, is_true in checks.items():
            out.print(f"  {'yes' if is_true else 'NO '}  {text}", markup=False)
        return None if all(checks.values()) else "approve, publish or rollback"

    def _check_bill(self) -> str | None:
        """Compare every job's bill with what the rehearsal model logged, priced by the table."""
        from sandbox.rehearsal.log import billed_nanousd, read_log

        logged = sum(billed_nanousd(call, platform_policy().prices) for call in read_log(self._embedded.request_log))
        billed = 0
        for case in self._cases:
            bill = case.view.get("bill")
            billed += int(bill["spent_nanousd"]) if isinstance(bill, dict) else 0
        is_equal = logged == billed
        out.print(f"  {'yes' if is_equal else 'NO '}  the bills add up to what the provider logged: "
                  f"${billed / 1e9:.6f} and ${logged / 1e9:.6f}", markup=False)  # fmt: skip
        return None if is_equal else "the bills differ from the provider's log"

    def _check_metrics(self) -> str | None:
        text = httpx.get(f"{self._embedded.exporter_url}/metrics", trust_env=False).text
        lines = [line for line in text.splitlines() if line.startswith("pointsman_jobs_finished_total")]
        ended = sum(float(line.rsplit(" ", 1)[1]) for line in lines)
        jobs = sum(1 for case in self._cases if case.view.get("ended_at"))
        out.print(f"  the metrics count {ended:.0f} ended jobs", markup=False)
        return None if ended >= jobs else f"the metrics count {ended:.0f} ended jobs, the demo {jobs}"
