"""The composition root of the producing side: opens what a program needs, when it needs it, from its settings."""

from __future__ import annotations

from functools import cached_property

from pydantic import BaseModel, ConfigDict

from ledger.audit import HEAD_FILE_NAME, HeadFile
from ledger.store import Ledger, create_ledger_engine
from monitoring.config import AuditConfig, ExporterConfig, LedgerConfig, LogsConfig, TracingConfig
from producers.config import ApiConfig, DispatcherConfig, GatewayPlace, PagesConfig, RunsPlace, WebhookConfig
from producers.dispatch.broker import Publisher
from producers.intake.submit import Environment, Submitter
from producers.use_cases.clarify import Clarifier
from producers.use_cases.dead_letters import DeadLetters, Notifications
from producers.use_cases.jobs import PreviewLinks
from producers.use_cases.rounds import Replays, Rounds
from producers.use_cases.sites import Sites
from routing.broker import create_app
from routing.config import BrokerConfig, PolicyConfig, secrets_of
from routing.policy.agents import AccountsConfig
from routing.policy.platform import Policy, load_policy
from routing.prompt.vocabulary import Vocabularies, load_vocabularies
from sandbox.config import MirrorConfig
from sites.config import DenConfig, PreviewConfig
from sites.content_store import Den
from sites.preview import PreviewSigner


class Settings(BaseModel):
    """The sections that the producing side's programs read."""

    model_config = ConfigDict(frozen=True)

    accounts: AccountsConfig = AccountsConfig()
    ledger: LedgerConfig = LedgerConfig()
    broker: BrokerConfig = BrokerConfig()
    policy: PolicyConfig = PolicyConfig()
    den: DenConfig = DenConfig()
    preview: PreviewConfig = PreviewConfig()
    audit: AuditConfig = AuditConfig()
    logs: LogsConfig = LogsConfig()
    tracing: TracingConfig = TracingConfig()
    api: ApiConfig = ApiConfig()
    pages: PagesConfig = PagesConfig()
    dispatcher: DispatcherConfig = DispatcherConfig()
    exporter: ExporterConfig = ExporterConfig()
    runs: RunsPlace = RunsPlace()
    worker: GatewayPlace = GatewayPlace()
    webhook: WebhookConfig = WebhookConfig()
    mirror: MirrorConfig = MirrorConfig()


class Installation:
    """One installation, as its environment describes it."""

    def __init__(self, settings: Settings, *, environment: Environment = dict) -> None:
        self.settings = settings
        self.environment = environment

    def close(self) -> None:
        """Close the ledger, if anything opened it."""
        if "ledger" in self.__dict__:
            self.ledger.close()

    @property
    def ledger_url(self) -> str:
        """Where the ledger is."""
        return self.settings.ledger.url.get_secret_value()

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger."""
        return Ledger(create_ledger_engine(self.ledger_url, pool_size=self.settings.ledger.pool_size))

    @cached_property
    def policy(self) -> Policy:
        """The platform's policy."""
        return load_policy(self.settings.policy.path)

    @cached_property
    def vocabularies(self) -> Vocabularies:
        """The words that routing looks for, the operator's own included."""
        return load_vocabularies(self.settings.policy.vocabulary)

    @cached_property
    def publisher(self) -> Publisher:
        """The way to the broker."""
        return Publisher(create_app(self.settings.broker.url, broker_use_ssl=self.settings.broker.tls))

    @cached_property
    def submitter(self) -> Submitter:
        """The one submit."""
        return Submitter(
            self.ledger, self.publisher, self.policy, environment=self.environment, vocabularies=self.vocabularies
        )

    @property
    def clarifier(self) -> Clarifier:
        """Takes replies to open questions."""
        return Clarifier(self.ledger, self.policy, environment=self.environment, vocabularies=self.vocabularies)

    @property
    def rounds(self) -> Rounds:
        """Lets jobs go on from others."""
        return Rounds(self.ledger, self.policy, environment=self.environment, vocabularies=self.vocabularies)

    @property
    def dead_letters(self) -> DeadLetters:
        """What ended as nobody wanted."""
        replays = Replays(self.ledger, self.policy, environment=self.environment, vocabularies=self.vocabularies)
        return DeadLetters(self.ledger, replays)

    @property
    def notifications(self) -> Notifications:
        """What owners are told of their jobs' ends."""
        return Notifications(self.ledger)

    @cached_property
    def den(self) -> Den:
        """The site files."""
        return Den(self.settings.den.root)

    @property
    def audit_heads(self) -> HeadFile:
        """Where the sealer keeps the audit chain's newest head."""
        return HeadFile(self.settings.audit.head_path or self.settings.den.root / HEAD_FILE_NAME)

    @cached_property
    def sites(self) -> Sites:
        """The sites."""
        return Sites(self.ledger, self.den, self.policy, known_keys=secrets_of(self.settings))

    @cached_property
    def signer(self) -> PreviewSigner | None:
        """What signs preview links; None where no key is configured."""
        keys = [key.get_secret_value() for key in self.settings.preview.keys]
        return PreviewSigner(keys) if keys else None

    @cached_property
    def previews(self) -> PreviewLinks | None:
        """What makes preview links; None where no key is configured."""
        return PreviewLinks(self.signer, self.settings.pages.public_url) if self.signer is not None else None
