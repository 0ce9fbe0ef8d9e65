"""`pointsman audit verify` and `pointsman key ...` as an operator types them, on a real ledger."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ledger import audit
from ledger.audit import HEAD_FILE_NAME, HeadFile, head_of, seal
from producers.config import DispatcherConfig
from producers.dispatch.broker import BrokerLists, Publisher
from producers.dispatch.dispatcher import Dispatcher
from producers.errors import AuthenticationError
from producers.use_cases.tenants import authenticate
from routing.broker import create_app
from tests.command_line import Run, command_line
from tests.factories import Shop, rows_of
from tests.integration.api.http_world import DEAD_BROKER

KEY = "a key of the operator's own"


@pytest.fixture
def run(shop: Shop, tmp_path: Path) -> Run:
    return command_line(shop.url, content_store__root=tmp_path, audit__signing_key=KEY)


@pytest.fixture
def sealed(shop: Shop, tmp_path: Path) -> Shop:
    """Three seals of three rows each; the sealer kept its newest head."""
    heads = HeadFile(tmp_path / HEAD_FILE_NAME)
    for batch in range(3):
        with shop.ledger.begin() as session:
            for row in range(3):
                audit.append(session, f"deed {batch}.{row}", actor="tester", tenant="acme")
        with shop.ledger.begin() as session:
            made = seal(session, signing_key=KEY.encode())
        assert made is not None
        heads.keep(head_of(made))
    return shop


TAMPERING = {
    "edit": (f"UPDATE audit SET actor = 'nobody' WHERE seq IN {rows_of(2)}", "seal 2 "),
    "deletion": ("DELETE FROM audit WHERE action = 'deed 1.1'", "seal 2 "),
    "reorder": (
        f"UPDATE audit a SET action = b.action FROM audit b WHERE a.seq IN {rows_of(2)} AND b.seq IN {rows_of(2)}"
        f" AND a.seq + b.seq = (SELECT min(seq) + max(seq) FROM audit WHERE seq IN {rows_of(2)})",
        "seal 2 ",
    ),
    "insertion": (
        "INSERT INTO audit (seq, action, actor, detail, sealed_in) SELECT -min(seq), 'forged', 'x', '{}', 1 FROM audit",
        "before row 1",
    ),
    "an edited seal": ("UPDATE audit_seal SET rows = 2 WHERE number = 2", "seal 2 was edited"),
    "a deleted seal": ("DELETE FROM audit_seal WHERE number = 2", "seal 3 follows where seal 2 should be"),
    "truncation of rows": (f"DELETE FROM audit WHERE seq IN {rows_of(3)}", "seal 3 "),
    "truncation of seals": ("DELETE FROM audit_seal WHERE number = 3", "no seal covers them"),
    "truncation of both": (
        f"WITH gone AS (DELETE FROM audit_seal WHERE number = 3) DELETE FROM audit WHERE seq IN {rows_of(3)}",
        "does not hold the expected head 3:",
    ),
    "all of it gone": (
        "WITH gone AS (DELETE FROM audit_seal) DELETE FROM audit",
        "does not hold the expected head 3:",
    ),
}


@pytest.mark.parametrize("name", TAMPERING)
def test_verify_exits_with_one_and_names_the_place_after(sealed: Shop, run: Run, name: str) -> None:
    assert run("audit", "verify").exit_code == 0
    statement, place = TAMPERING[name]
    sealed.execute(statement)
    done = run("audit", "verify")
    assert done.exit_code == 1
    assert place in done.stdout


def test_the_dispatcher_keeps_each_head_in_its_log_and_in_a_file(
    shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heads = HeadFile(tmp_path / "elsewhere" / "head")
    assert heads.newest() is None
    lists = BrokerLists(DEAD_BROKER)
    dispatcher = Dispatcher(
        shop.ledger,
        Publisher(create_app(DEAD_BROKER)),
        lists,
        policy=shop.policy,
        config=DispatcherConfig(),
        holder="test",
        signing_key=KEY.encode(),
        heads=heads,
    )
    with shop.ledger.begin() as session:
        audit.append(session, "deed", actor="tester")
    with caplog.at_level("INFO"):
        assert dispatcher.run_once()
    lists.close()
    (record,) = [record for record in caplog.records if record.message == "audit_sealed"]
    assert heads.newest() == vars(record)["head"]
    assert str(heads.newest()).startswith("1:")


def test_a_key_is_listed_without_its_secret_and_revoked_at_once(shop: Shop, run: Run) -> None:
    secret = run("key", "create", "--name", "ci", "--scope", "read", "--tenant", "acme").stdout.strip()
    with shop.ledger.begin() as session:
        assert authenticate(session, secret).key_name == "ci"
    listed = run("key", "list", "--tenant", "acme", "--json")
    assert [(key["name"], key["scopes"]) for key in json.loads(listed.stdout)] == [("ci", ["read"])]
    assert secret not in listed.stdout
    assert "ci" in run("key", "list", "--tenant", "acme").stdout
    run("key", "create", "--name", "plain", "--tenant", "acme")
    scopes = {key["name"]: key["scopes"] for key in json.loads(run("key", "list", "--tenant", "acme", "--json").stdout)}
    assert sorted(scopes["plain"]) == ["read", "submit"]
    assert run("key", "revoke", "ci", "--tenant", "acme").exit_code == 0
    with shop.ledger.begin() as session, pytest.raises(AuthenticationError):
        authenticate(session, secret)
    again = run("key", "revoke", "ci", "--tenant", "acme")
    assert (again.exit_code, "has no valid key 'ci'" in again.stderr) == (1, True)
