"""Wiring of the record."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from routing.config import OptionalPath, Section


class LedgerConfig(Section):
    """Where the ledger is."""

    url: SecretStr = SecretStr("postgresql://pointsman@127.0.0.1:5432/pointsman")
    """A PostgreSQL URL."""
    pool_size: int = Field(default=4, ge=1, le=100)
    """Connections that a process keeps open."""
    migration_wait_seconds: float = Field(default=60.0, ge=0, le=3600)
    """How long a process that finds the schema of an older version waits for `pointsman migrate` before it gives up."""


class AuditConfig(Section):
    """How the audit chain is signed."""

    signing_key: SecretStr = Field(default=SecretStr(""), validate_default=False)
    """Secret that signs each seal of the chain. Without one the dispatcher refuses to start."""
    archive_dir: OptionalPath = None
    """Directory to which the leading dispatcher moves rows that are older than the policy's `retention.audit_days`. All
    dispatchers share it, and it is backed up like the ledger; empty: no row ever leaves the ledger."""
    head_path: OptionalPath = None
    """File in which the dispatcher keeps the chain's newest head, so that a cut-off tail is found; empty for
    `audit-head` in the Den. Best is a place where nobody can write who can write to the ledger."""


class LogsConfig(Section):
    """What is logged."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    routing_dir: OptionalPath = None
    """Directory of the daily routing log, which the leading dispatcher writes; empty for none."""


class ExporterConfig(Section):
    """Where metrics are served."""

    host: str = "127.0.0.1"
    port: int = Field(default=9108, ge=0, le=65535)


class TracingConfig(Section):
    """Where traces go. Without an endpoint nothing is traced."""

    endpoint: Annotated[str, Field(pattern=r"^(https?://[^\s/]+/\S*)?$")] = ""
    """URL at which an OpenTelemetry collector takes traces by OTLP over HTTP, path and all, such as
    `http://collector:4318/v1/traces`; empty: nothing is traced. Needs the extra `pointsman[tracing]`."""
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """HTTP headers that the collector wants, by name; `POINTSMAN_TRACING__HEADERS__AUTHORIZATION` sets one."""
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of the traces that are recorded. It is decided once, where a job comes in, for all that follows."""
    trust_sampled: bool = False
    """Whether a caller's own `traceparent` decides, by its flag, that its jobs are recorded or not. When false only its
    ids are taken over."""
    queue_spans: Annotated[int, Field(ge=100, le=100_000)] = 4_000
    """Spans that a process keeps for a collector that is slow or away. What does not fit is dropped; the log says
    so."""
    timeout_seconds: Annotated[float, Field(gt=0, le=60)] = 5.0
    """How long one delivery may take, repetitions included. No job waits for it."""
    exit_seconds: Annotated[float, Field(ge=0, le=10)] = 1.0
    """How long a process that ends waits for its last spans to be delivered."""
