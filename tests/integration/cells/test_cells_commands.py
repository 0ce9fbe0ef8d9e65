"""`pointsman cells`: an installation becomes a cell, and a tenant moves by one command."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner, Result

from producers.cli import app
from tests.services import Postgres

Run = Callable[..., Result]


@pytest.fixture
def cells(postgres: Postgres, tmp_path: Path) -> Iterator[Run]:
    """Run a command in the environment of a cell."""
    with ExitStack() as stack:
        directory = stack.enter_context(postgres.database(template="template1"))
        urls = {name: stack.enter_context(postgres.database()) for name in ("east", "west")}
        for url in urls.values():
            postgres.leave(url)
            with psycopg.connect(url) as connection:  # all are copies of one template
                connection.execute("INSERT INTO epoch (id) VALUES (gen_random_uuid())")

        def run(name: str, *arguments: str) -> Result:
            environment = {
                "HOME": "/nonexistent",
                "POINTSMAN_LEDGER__URL": urls[name].replace("postgres:@", "postgres:swordfish@"),
                "POINTSMAN_BROKER__URL": "redis://pointsman:swordfish@127.0.0.1:1/0",
                "POINTSMAN_CONTENT_STORE__ROOT": str(tmp_path / name),
                "POINTSMAN_RUNS__ROOT": str(tmp_path / f"{name}-runs"),
                "POINTSMAN_CELLS__DIRECTORY_URL": directory,
                "POINTSMAN_CELLS__NAME": name,
                "POINTSMAN_CELLS__LEASE_SECONDS": "0.01",
            }
            return CliRunner().invoke(app, arguments, env=environment, prog_name="pointsman")

        yield run
        with psycopg.connect(directory) as connection:
            has_cells = connection.execute("SELECT to_regclass('cell')").fetchone() != (None,)
            known = str(connection.execute("SELECT cell FROM cell").fetchall()) if has_cells else ""
            assert "swordfish" not in known, "the directory has no password"


def test_two_installations_become_cells_and_a_tenant_moves_between_them(cells: Run) -> None:
    assert json.loads(cells("east", "cells", "add", "--json").stdout) == {"cell": "east", "tenants": []}
    assert cells("east", "key", "create", "--tenant", "acme", "--name", "a").exit_code == 0
    cells("west", "cells", "add", "--api-url", "http://10.0.0.2:8080")
    taken = cells("west", "key", "create", "--tenant", "acme")
    assert (taken.exit_code, "belongs to cell 'east'" in taken.output) == (1, True)
    assert cells("west", "tenant", "show", "acme").exit_code == 2, "and nothing of it is left"
    moved = cells("west", "cells", "move", "acme", "--to", "west")
    assert moved.stdout.split("\n")[:5] == [
        "acme: frozen",
        "acme: copied",
        "acme: switched",
        "acme: opened",
        "acme is in cell west",
    ]
    assert "already" in cells("east", "cells", "move", "acme", "--to", "west").stdout
    told = json.loads(cells("east", "cells", "status", "--json").stdout)
    assert told["tenants"] == [{"tenant": "acme", "cell": "west", "epoch": 2, "step": None}]
    assert [(cell["name"], cell["tenants"], cell["is_ready"]) for cell in told["cells"]] == [
        ("east", 0, False),
        ("west", 1, False),
    ]
    assert "acme" in cells("east", "cells", "status").stdout
    assert cells("east", "cells", "add").exit_code == 0, "what has moved away is not claimed again"


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        (("move", "nobody", "--to", "east"), 1, "no cell has a tenant 'nobody'"),
        (("move", "acme", "--to", "nowhere"), 1, "`pointsman cells status` lists them"),
        (("abort", "acme"), 1, "is not being moved"),
        (("move", "acme"), 2, "--to"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_error_says_what_is_wrong(cells: Run, arguments: tuple[str, ...], code: int, hint: str) -> None:
    cells("east", "cells", "add")
    result = cells("east", "cells", *arguments)
    assert (result.exit_code, hint in " ".join(result.output.split())) == (code, True), result.output


def test_a_store_of_another_ledger_and_a_place_that_cannot_be_made_are_not_written_to_the_directory(
    cells: Run, tmp_path: Path
) -> None:
    cells("east", "cells", "add")
    (tmp_path / "west").symlink_to(tmp_path / "east")
    taken = cells("west", "cells", "add")
    assert (taken.exit_code, "another ledger" in " ".join(taken.output.split())) == (1, True), taken.output
    (tmp_path / "west").unlink()
    (tmp_path / "west-runs").write_text("no directory")
    unmade = cells("west", "cells", "add")
    assert (unmade.exit_code, "west-runs" in "".join(unmade.output.split())) == (1, True), unmade.output
    assert [cell["name"] for cell in json.loads(cells("east", "cells", "status", "--json").stdout)["cells"]] == ["east"]


def test_a_restore_tells_who_has_left_and_who_has_come(cells: Run, tmp_path: Path) -> None:
    for name, tenant in (("east", "acme"), ("west", "other")):
        cells(name, "cells", "add")
        cells(name, "key", "create", "--tenant", tenant)
        assert cells(name, "backup", str(tmp_path / f"of-{name}")).exit_code == 0
    assert cells("west", "cells", "move", "acme", "--to", "west").exit_code == 0
    east, west = (cells(name, "restore", str(tmp_path / f"of-{name}"), "--force") for name in ("east", "west"))
    assert "acme has moved to another cell since" in east.stdout, east.output
    assert "acme has come to this cell since" in west.stderr
    assert "other" not in west.output


def test_an_installation_that_is_alone_is_told_what_is_missing(cells: Run) -> None:
    alone = CliRunner().invoke(app, ["cells", "status"], env={"POINTSMAN_LEDGER__URL": "postgresql://x"})
    assert alone.exit_code == 2
    assert "POINTSMAN_CELLS__DIRECTORY_URL" in alone.output
