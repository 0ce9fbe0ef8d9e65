"""All use cases on one ledger and content store, as the API, the console and the commands call them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ledger.store import Ledger
from producers.intake.submit import Environment
from producers.use_cases.clarify import Clarifier
from producers.use_cases.dead_letters import DeadLetters, Notifications
from producers.use_cases.rounds import Replays, Rounds
from producers.use_cases.runs import Projects
from producers.use_cases.sites import Sites
from routing.policy.platform import Policy
from routing.prompt.vocabulary import Vocabularies, shipped_vocabularies
from sites.content_store import ContentStore


@dataclass(frozen=True, kw_only=True)
class UseCases:
    """The use cases on one ledger and content store, under one policy."""

    ledger: Ledger
    content_store: ContentStore
    policy: Policy
    environment: Environment = dict
    """Switches that are read for every decision."""
    vocabularies: Vocabularies = field(default_factory=shipped_vocabularies)
    """The words that routing looks for."""
    known_keys: tuple[str, ...] = ()
    """Secrets of this installation that no site may hold."""
    private_remotes: bool = False
    """Whether a project's remote may have an address that is not public."""

    @property
    def sites(self) -> Sites:
        """Sites and their releases."""
        return Sites(self.ledger, self.content_store, self.policy, self.known_keys)

    @property
    def projects(self) -> Projects:
        """Code projects."""
        return Projects(self.ledger, self.policy, self.private_remotes)

    @property
    def clarifier(self) -> Clarifier:
        """Replies to open questions."""
        return Clarifier(self.ledger, self.policy, self.environment, self.vocabularies)

    @property
    def rounds(self) -> Rounds:
        """Jobs that continue others."""
        return Rounds(self.ledger, self.policy, self.environment, self.vocabularies)

    @property
    def replays(self) -> Replays:
        """Jobs that repeat others."""
        return Replays(self.ledger, self.policy, self.environment, self.vocabularies)

    @property
    def dead_letters(self) -> DeadLetters:
        """Jobs that failed for good."""
        return DeadLetters(self.ledger, self.replays)

    @property
    def notifications(self) -> Notifications:
        """Callbacks at the end of jobs."""
        return Notifications(self.ledger)
