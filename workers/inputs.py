"""What the computations of an attempt read: values that pickle, so that a pool's child may compute them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from uuid import UUID

from ledger.start_attempt import Claim
from ledger.tables import Release, Site
from routing.jobs import ANSWERS, MAX_QUESTIONS
from routing.model_call import today_line
from routing.policy.platform import Policy
from routing.rounds import brief_worker, quote_answers
from sites.content_store import ContentStore
from sites.releases import manifest_of
from sites.spec.model import Site as SiteSpec
from sites.spec.model import parse_site


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What an attempt's computations read: values that pickle, and its site's files."""

    claim: Claim
    content_store: ContentStore

    @property
    def job_id(self) -> UUID:
        """The job's id."""
        return self.claim.job.id

    @property
    def site(self) -> Site | None:
        """The site that is edited or asked about."""
        return self.claim.site

    @property
    def base(self) -> Release | None:
        """The active release, with which the work is compared; None for a site without one."""
        return self.claim.base

    @property
    def begun(self) -> Release | None:
        """What an earlier round of the session kept, where the work continues; None when it starts from the base."""
        return self.claim.begun

    @property
    def prompt(self) -> str:
        """The request."""
        return self.claim.job.prompt

    @property
    def instruction(self) -> str:
        """What the job's debate decided that the work must respect; empty for most jobs."""
        return str((self.claim.job.result.get("debate") or {}).get("instruction", ""))

    @property
    def answers(self) -> Sequence[Mapping[str, str]]:
        """What its owner was asked at work and said."""
        return self.claim.job.result.get(ANSWERS) or ()

    @property
    def may_ask(self) -> bool:
        """Whether the work may wait for its owner's answer once more; with a question beside an edit nothing waits."""
        return len(self.answers) < MAX_QUESTIONS

    @property
    def words(self) -> str:
        """All that the owner said: the request, and answers to questions."""
        return "\n".join((self.prompt, *(each["answer"] for each in self.answers)))

    @property
    def order(self) -> str:
        """The prompt for a model: the request unchanged, then what was answered, begun, and decided by a debate."""
        keep_to = f"Keep to this: {self.instruction}" if self.instruction else ""
        begun = brief_worker(self.claim.job.result.get("begun") or {})
        return "\n\n".join(part for part in (self.prompt, quote_answers(self.answers), begun, keep_to) if part)

    @property
    def asked(self) -> str:
        """The order as edits and answers put it to a model, with the day that the ledger recorded for the attempt."""
        return f"{today_line(self.claim.attempt.started_at)}\n\nThe owner asks:\n{self.order}"

    @property
    def start(self) -> Release | None:
        """The release whose files are edited or asked about: what was begun, else the base; None for a new site."""
        return self.begun or self.base

    @property
    def has_site_moved_on(self) -> bool:
        """Whether what was begun can no longer be published: another release became active since (H-084)."""
        active = self.site.active_release_id if self.site is not None else None
        return self.begun is not None and self.begun.base_release_id != active

    @property
    def policy(self) -> Policy:
        """The policy of this job's tenant."""
        return self.claim.policy

    @cached_property
    def base_files(self) -> dict[str, bytes]:
        """The files of the active release by path, with which a candidate is compared; empty for a new site."""
        return self.content_store.read_tree(manifest_of(self.base)) if self.base is not None else {}

    @cached_property
    def files(self) -> dict[str, bytes]:
        """The files that are edited or asked about, by path; empty for a new site."""
        return self.content_store.read_tree(manifest_of(self.begun)) if self.begun is not None else self.base_files

    @cached_property
    def spec(self) -> SiteSpec | None:
        """The site document that is edited; whether pages still are its render is another question."""
        digest = self.start.spec_sha256 if self.start is not None else None
        return None if digest is None else parse_site(self.content_store.get(digest))
