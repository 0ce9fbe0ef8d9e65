"""What `pointsman up` keeps from one run to the next, in a home of its own with a real database."""

import socket
from pathlib import Path

from sqlalchemy import text

from ledger.store import Ledger, create_ledger_engine
from producers.local.embedded import Embedded, Options
from producers.local.preparation import Preparation, Prepared, prepare, start_postgres
from producers.local.supervisor import Home
from producers.use_cases.tenants import authenticate
from sandbox.config import BoxConfig


def prepared(home: Path) -> Prepared:
    wanted = Preparation(
        home=home,
        provider="fake",
        site=None,
        policy=None,
        box=BoxConfig(engine="unix:///nowhere.sock"),
        gateway_port=0,
        mirror_port=0,
        npm="",
        environment={},
    )
    return prepare(wanted)


def test_the_key_stays_from_run_to_run_until_it_is_revoked(tmp_path: Path) -> None:
    first = prepared(tmp_path)
    ledger = Ledger(create_ledger_engine(first.ledger_url))
    try:
        assert prepared(tmp_path).api_key == first.api_key
        assert (tmp_path / "secrets.json").stat().st_mode & 0o777 == 0o600
        with ledger.begin() as session:
            assert session.scalar(text("SELECT count(*) FROM api_key")) == 1
            session.execute(text("UPDATE api_key SET revoked_at = now()"))
        second = prepared(tmp_path)
        assert second.api_key != first.api_key
        with ledger.begin() as session:
            assert authenticate(session, second.api_key).tenant == "demo"
    finally:
        ledger.close()
        start_postgres(tmp_path / "postgres").cleanup()


def test_the_ports_stay_from_run_to_run_where_they_are_free(tmp_path: Path) -> None:
    first = Embedded(Options(home=tmp_path, api_port=0), base_environment={})
    Home(tmp_path).keep_ports(first.ports)
    assert Embedded(Options(home=tmp_path, api_port=0), base_environment={}).ports == first.ports
    with socket.create_server(("127.0.0.1", first.ports["gateway"])):
        again = Embedded(Options(home=tmp_path, api_port=0), base_environment={}).ports
    assert again["gateway"] != first.ports["gateway"]
    assert {**again, "gateway": 0} == {**first.ports, "gateway": 0}
