"""procrastinate's application on the shared database."""

from typing import Any

from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from benchmarks.places import PEER_DATABASE, place

QUEUE = "bench"

app = App(connector=PsycopgConnector(conninfo=place(PEER_DATABASE)))
"""What its workers run."""


@app.task(name="noop", queue=QUEUE)
def noop(**_: Any) -> None:
    """Do nothing."""


def opened() -> App:
    """Return an application that submits, with its tables made."""
    submitting = App(connector=SyncPsycopgConnector(conninfo=place(PEER_DATABASE)))
    submitting.open()
    if not submitting.connector.execute_query_one("SELECT to_regclass('procrastinate_jobs') AS found")["found"]:
        submitting.schema_manager.apply_schema()
    return submitting
