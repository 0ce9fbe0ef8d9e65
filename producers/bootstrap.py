"""The composition root of the producers: opens what a program needs, when it needs it, from its settings.

What only some programs need, SQLAlchemy and Celery above all, is imported as it is opened.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, SecretStr

from monitoring.config import AuditConfig, CellsConfig, ExporterConfig, LedgerConfig, LogsConfig, TracingConfig
from producers.config import (
    ApiConfig,
    DispatcherConfig,
    GatewayPlace,
    MailConfig,
    OidcConfig,
    PagesConfig,
    RunsPlace,
    WebhookConfig,
)
from routing.config import BrokerConfig, CellSecrets, PolicyConfig, collect_secrets, split_password
from routing.policy.agents import AccountsConfig
from routing.policy.platform import Policy, load_policy
from routing.prompt.vocabulary import Vocabularies, load_vocabularies, shipped_vocabularies
from sandbox.config import MirrorConfig
from sites.config import ContentStoreConfig, PreviewConfig

if TYPE_CHECKING:
    from ledger.audit import HeadFile
    from ledger.cells.directory import Directory
    from ledger.store import Ledger
    from producers.dispatch.broker import Publisher
    from producers.intake.submit import Environment, Submitter
    from producers.use_cases.clarify import Clarifier
    from producers.use_cases.dead_letters import DeadLetters, Notifications
    from producers.use_cases.jobs import PreviewLinks
    from producers.use_cases.notices import Notices
    from producers.use_cases.replays import Replays
    from producers.use_cases.rounds import Rounds
    from producers.use_cases.run_work import RunWork
    from producers.use_cases.runs import Projects
    from producers.use_cases.sites import Sites
    from sites.content_store import ContentStore
    from sites.preview import PreviewSigner


class Settings(BaseModel, frozen=True):
    """The sections that the producers' programs read."""

    accounts: AccountsConfig = AccountsConfig()
    ledger: LedgerConfig = LedgerConfig()
    broker: BrokerConfig = BrokerConfig()
    cells: CellsConfig = CellsConfig()
    policy: PolicyConfig = PolicyConfig()
    content_store: ContentStoreConfig = ContentStoreConfig()
    preview: PreviewConfig = PreviewConfig()
    audit: AuditConfig = AuditConfig()
    logs: LogsConfig = LogsConfig()
    tracing: TracingConfig = TracingConfig()
    api: ApiConfig = ApiConfig()
    oidc: OidcConfig = OidcConfig()
    pages: PagesConfig = PagesConfig()
    dispatcher: DispatcherConfig = DispatcherConfig()
    exporter: ExporterConfig = ExporterConfig()
    runs: RunsPlace = RunsPlace()
    worker: GatewayPlace = GatewayPlace()
    mail: MailConfig = MailConfig()
    webhook: WebhookConfig = WebhookConfig()
    mirror: MirrorConfig = MirrorConfig()


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
    runs_root: Path = Path(".pointsman/runs")
    """Of the workspaces of runs."""

    @property
    def sites(self) -> Sites:
        """Sites and their releases."""
        from producers.use_cases.sites import Sites

        return Sites(self.ledger, self.content_store, self.policy, self.known_keys)

    @property
    def projects(self) -> Projects:
        """Code projects."""
        from producers.use_cases.runs import Projects

        return Projects(self.ledger, self.policy, self.private_remotes)

    @property
    def run_work(self) -> RunWork:
        """The work of runs."""
        from producers.use_cases.run_work import RunWork

        return RunWork(self.ledger, self.runs_root, self.known_keys)

    @property
    def clarifier(self) -> Clarifier:
        """Replies to open questions."""
        from producers.use_cases.clarify import Clarifier

        return Clarifier(self.ledger, self.policy, self.environment, self.vocabularies)

    @property
    def rounds(self) -> Rounds:
        """Jobs that continue others."""
        from producers.use_cases.rounds import Rounds

        return Rounds(self.ledger, self.policy, self.environment, self.vocabularies)

    @property
    def replays(self) -> Replays:
        """Jobs that repeat others."""
        from producers.use_cases.replays import Replays

        return Replays(self.ledger, self.policy, self.environment, self.vocabularies)

    @property
    def dead_letters(self) -> DeadLetters:
        """Jobs that failed for good."""
        from producers.use_cases.dead_letters import DeadLetters

        return DeadLetters(self.ledger, self.replays)

    @property
    def notifications(self) -> Notifications:
        """Callbacks at the end of jobs."""
        from producers.use_cases.dead_letters import Notifications

        return Notifications(self.ledger)

    @property
    def notices(self) -> Notices:
        """Messages that jobs wait for a person."""
        from producers.use_cases.notices import Notices

        return Notices(self.ledger)


class Installation:
    """An installation as its environment describes it."""

    def __init__(self, settings: Settings, *, environment: Environment = dict) -> None:
        self.settings = settings
        self.environment = environment

    @property
    def idle_seconds(self) -> float:
        """How long a session of the console stays open unused."""
        return self.settings.api.session_idle_minutes * 60

    def close(self) -> None:
        """Close the ledger if it was opened."""
        if "ledger" in self.__dict__:
            self.ledger.close()
        if (directory := self.__dict__.get("directory")) is not None:
            directory.close()

    @property
    def ledger_url(self) -> str:
        """The URL of the ledger."""
        return self.settings.ledger.url.get_secret_value()

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger."""
        from ledger.store import Ledger, create_ledger_engine

        config = self.settings.ledger
        return Ledger(
            create_ledger_engine(
                self.ledger_url, pooler_url=config.pooler_url.get_secret_value(), pool_size=config.pool_size
            )
        )

    @cached_property
    def directory(self) -> Directory | None:
        """The directory of the fleet that this cell is of; None for an installation that is alone."""
        from ledger.cells.directory import Directory

        settings = self.settings
        url = settings.cells.directory_url.get_secret_value()
        own = CellSecrets(
            ledger=SecretStr(split_password(self.ledger_url)[1]),
            broker=SecretStr(split_password(settings.broker.url)[1]),
            content_store=dict(settings.content_store.secrets),
        )
        return Directory(url, {**settings.cells.secrets, settings.cells.name: own}) if url else None

    @cached_property
    def policy(self) -> Policy:
        """The platform's policy."""
        return load_policy(self.settings.policy.path)

    @cached_property
    def vocabularies(self) -> Vocabularies:
        """The words that routing looks for, including the operator's own."""
        return load_vocabularies(self.settings.policy.vocabulary)

    @cached_property
    def publisher(self) -> Publisher:
        """Publishes messages to the broker."""
        from producers.dispatch.broker import Publisher
        from routing.broker import create_app

        return Publisher(create_app(self.settings.broker.url, broker_use_ssl=self.settings.broker.tls))

    @cached_property
    def submitter(self) -> Submitter:
        """Accepts jobs."""
        from producers.intake.submit import Submitter

        return Submitter(
            self.ledger,
            self.publisher,
            self.policy,
            environment=self.environment,
            vocabularies=self.vocabularies,
            private_callbacks=self.settings.webhook.allow_private,
        )

    @cached_property
    def use_cases(self) -> UseCases:
        """The use cases."""
        return UseCases(
            ledger=self.ledger,
            content_store=self.content_store,
            policy=self.policy,
            environment=self.environment,
            vocabularies=self.vocabularies,
            known_keys=collect_secrets(self.settings),
            private_remotes=self.settings.runs.private_remotes,
            runs_root=self.settings.runs.root,
        )

    @cached_property
    def content_store(self) -> ContentStore:
        """The files of the sites."""
        from sites.content_store import open_content_store

        return open_content_store(self.settings.content_store)

    @property
    def audit_heads(self) -> HeadFile:
        """The file with the newest head of the audit chain."""
        from ledger.audit import HEAD_FILE_NAME, HeadFile

        return HeadFile(self.settings.audit.head_path or self.settings.content_store.root / HEAD_FILE_NAME)

    @cached_property
    def signer(self) -> PreviewSigner | None:
        """Signs preview links; None without a configured key."""
        from sites.preview import PreviewSigner

        keys = [key.get_secret_value() for key in self.settings.preview.keys]
        return PreviewSigner(keys) if keys else None

    @cached_property
    def previews(self) -> PreviewLinks | None:
        """Creates preview links; None without a configured key."""
        from producers.use_cases.jobs import PreviewLinks

        return PreviewLinks(self.signer, self.settings.pages.public_url) if self.signer is not None else None
