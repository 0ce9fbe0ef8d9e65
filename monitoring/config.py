"""Settings of the ledger, the audit chain, logs, metrics and traces."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from routing.config import CellSecrets, OptionalPath, Section


class LedgerConfig(Section):
    """The ledger's database."""

    url: SecretStr = SecretStr("postgresql://pointsman@127.0.0.1:5432/pointsman")
    """A PostgreSQL URL."""
    pooler_url: SecretStr = Field(default=SecretStr(""), validate_default=False)
    """URL of a PgBouncer in transaction mode before the same database, for what opens most connections: API, workers,
    and the dispatchers' statements. What listens or depends on its session keeps to `url`. Empty for none."""
    pool_size: int = Field(default=4, ge=1, le=100)
    """Connections that a process keeps open."""
    migration_wait_seconds: float = Field(default=60.0, ge=0, le=3600)
    """How long a process that finds an older schema waits for `pointsman migrate` before it gives up."""


class CellsConfig(Section):
    """Several installations as one fleet (`pointsman cells`). Without a directory this one is alone."""

    directory_url: SecretStr = Field(default=SecretStr(""), validate_default=False)
    """A PostgreSQL URL of the fleet's directory, a database of its own; empty for none."""
    name: Annotated[str, Field(pattern=r"^([a-z][a-z0-9-]{0,31})?$")] = ""
    """The name of the cell that this installation is."""
    secrets: dict[str, CellSecrets] = Field(default_factory=dict)
    """Passwords of other cells' servers, by cell, where this one moves tenants to or from them, or forwards Celery
    messages; its own it knows. `POINTSMAN_CELLS__SECRETS__WEST__BROKER` and so on."""
    slice_usd: float = Field(default=1.0, gt=0)
    """How much of the fleet's budget of a day a cell leases at a time. One that is lost costs the fleet so much."""
    host: str = "127.0.0.1"
    """Of the router (`pointsman router`)."""
    port: int = Field(default=8180, ge=0, le=65535)
    """Where the router serves API and console."""
    pages_port: int = Field(default=8181, ge=0, le=65535)
    """Where the router serves previews and live pages."""
    public_url: str = ""
    """The router's public URL of API and console; with `https` its cookie is for that alone."""
    lease_seconds: float = Field(default=2.0, gt=0, le=60)
    """How long a router goes by what the directory told it, and a move waits before the old cell is cleared."""


class AuditConfig(Section):
    """The audit chain."""

    signing_key: SecretStr = Field(default=SecretStr(""), validate_default=False)
    """Secret that signs each seal of the chain. Without one the dispatcher refuses to start."""
    archive_dir: OptionalPath = None
    """Directory to which the leading dispatcher moves rows older than the policy's `retention.audit_days`. Shared by
    all dispatchers and backed up like the ledger; empty to keep all rows in the ledger."""
    head_path: OptionalPath = None
    """File with the newest head of the audit chain, which shows a cut-off tail; empty for `audit-head` in the content
    store. Nobody who can write to the ledger should be able to write to it."""


class LogsConfig(Section):
    """Logs."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    routing_dir: OptionalPath = None
    """Directory of the daily routing log, written by the leading dispatcher; empty for none."""


class ExporterConfig(Section):
    """The metrics' HTTP server."""

    host: str = "127.0.0.1"
    port: int = Field(default=9108, ge=0, le=65535)


class TracingConfig(Section):
    """Traces. Without an endpoint nothing is traced."""

    endpoint: Annotated[str, Field(pattern=r"^(https?://[^\s/]+/\S*)?$")] = ""
    """Full URL of an OpenTelemetry collector for OTLP over HTTP, such as `http://collector:4318/v1/traces`; empty for
    no traces. Needs the extra `pointsman[tracing]`."""
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """HTTP headers for the collector, by name; `POINTSMAN_TRACING__HEADERS__AUTHORIZATION` sets one."""
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of recorded traces, decided once, where a job is submitted."""
    trust_sampled: bool = False
    """Whether the flag of a caller's `traceparent` decides if its jobs are recorded. If false, only its ids count."""
    queue_spans: Annotated[int, Field(ge=100, le=100_000)] = 4_000
    """Spans that a process keeps for a slow or absent collector. Further ones are dropped, which is logged."""
    timeout_seconds: Annotated[float, Field(gt=0, le=60)] = 5.0
    """How long one delivery may take, including retries. No job waits for it."""
    exit_seconds: Annotated[float, Field(ge=0, le=10)] = 1.0
    """How long an ending process waits for the delivery of its last spans."""
