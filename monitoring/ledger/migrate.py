"""Bring a ledger to the current schema, once, however many processes ask for it at the same time."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, text

_MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK_KEY = 7_041_776
"""PostgreSQL advisory lock: migrations run one at a time."""


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    return config


def migrate(engine: Engine) -> None:
    """Upgrade the ledger's schema to the newest revision; does nothing when it is there already."""
    config = _config()
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def is_current(engine: Engine) -> bool:
    """Tell whether the ledger has the schema that this code was written for."""
    with engine.connect() as connection:
        found = MigrationContext.configure(connection).get_current_revision()
    return found == ScriptDirectory.from_config(_config()).get_current_head()
