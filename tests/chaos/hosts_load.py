"""The jobs of the three hosts: a mixed load, and the reviewers who approve it."""

from __future__ import annotations

import random
import time
from typing import Any
from uuid import UUID

import httpx2

from routing.jobs import ENDS
from tests.chaos.three_hosts import ThreeHosts

PAGE = (
    b'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>Cafe</title></head>\n<body>\n<main>\n'
    b'<section id="menu"><h1>Welcome</h1><p>Coffee and cake.</p><div class="card">Cake</div></section>\n'
    b"</main>\n</body>\n</html>\n"
)
BIG_FILES = 490
"""A publish of so many files takes long enough to be cut in its middle."""


class Load:
    """Submits jobs and approves what waits for it, as callers and reviewers would."""

    def __init__(self, hosts: ThreeHosts, rng: random.Random) -> None:
        self._hosts = hosts
        self._rng = rng
        self._sites: list[str] = []
        self.accepted: list[UUID] = []
        self.kept_back: set[UUID] = set()
        """Edits of big sites: their publishes are for the moment of a cut."""

    def prepare(self, small: int) -> None:
        for number in range(small):
            self._sites.append(f"cafe-{number}")
            self._hosts.import_site(self._sites[-1], {"index.html": PAGE})

    def import_big(self, name: str) -> None:
        leaves = {f"docs/{number % 50}/page-{number}.txt": b"page %d" % number for number in range(BIG_FILES)}
        self._hosts.import_site(name, {"index.html": PAGE, **leaves})

    def submit(self, prompt: str, **body: Any) -> UUID:
        answer = self._hosts.http.post("/v1/jobs", json={"prompt": prompt, **body})
        assert answer.status_code == httpx2.codes.ACCEPTED, answer.text
        self.accepted.append(UUID(answer.json()["id"]))
        return self.accepted[-1]

    def submit_one(self) -> UUID:
        """One job of a mixed load; most sites have an edit already that waits for its turn."""
        site, number = self._rng.choice(self._sites), len(self.accepted)
        kinds = {
            "tools": 5,
            "answer": 3,
            "slow_answer": 1,
            "direct": 4,
            "patch": 2,
            "model_spec": 1,
        }
        match self._rng.choices(list(kinds), list(kinds.values()))[0]:
            case "tools":
                return self.submit(f"echo {number}")
            case "answer":
                return self.submit(f"What is a sourdough starter, in {number} words?")
            case "slow_answer":
                return self.submit(f"Explain how bread rises, part {number} [rehearse:linger]")
            case "direct":
                return self.submit(f"Change the heading 'Welcome' to 'Welcome {number}'", site=site)
            case "patch":
                return self.submit("Add a hover effect to the cards", site=site)
            case _:
                return self.submit_model_edit(site)

    def submit_model_edit(self, site: str = "") -> UUID:
        """An edit of some seconds, by a model and without an agent."""
        site = site or self._rng.choice(self._sites)
        return self.submit("Add a hover effect to the cards, and a shadow [rehearse:linger]", site=site)

    def approve_waiting(self) -> None:
        """Approve what waits, but for what is kept back."""
        found = self._hosts.rows("SELECT id FROM job WHERE state = 'awaiting_approval' LIMIT 50")
        for (job_id,) in found:
            if job_id not in self.kept_back:
                self.approve(job_id)

    def approve(self, job_id: UUID) -> None:
        """Approve one; what has ended or was outrun by another publish meanwhile is refused, which is right."""
        self.kept_back.discard(job_id)
        answer = self._hosts.http.post(f"/v1/jobs/{job_id}/approve")
        assert answer.is_success or answer.status_code == httpx2.codes.CONFLICT, answer.text
        if answer.status_code == httpx2.codes.CONFLICT:
            self._hosts.http.post(f"/v1/jobs/{job_id}/reject", json={"reason": "outrun"})

    def open_jobs(self) -> int:
        [(count,)] = self._hosts.rows("SELECT count(*) FROM job WHERE NOT state = ANY(:ends)", ends=sorted(ENDS))
        return int(count)

    def keep_up(self, seconds: float, *, per_second: float) -> None:
        """Let jobs flow for a while."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.submit_one()
            self.approve_waiting()
            time.sleep(min(1 / per_second, max(0.0, until - time.monotonic())))
