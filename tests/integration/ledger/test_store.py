"""The way into the ledger: what its connections and its errors are like."""

import traceback
from contextlib import ExitStack, suppress

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, OperationalError

from ledger.store import Ledger, Statement, create_ledger_engine
from tests.factories import Shop


def test_an_error_of_the_ledger_names_no_value_of_a_statement(shop: Shop) -> None:
    secret = "my private prompt"
    with pytest.raises(DBAPIError) as error, shop.ledger.begin() as session:
        session.execute(text("SELECT 1 / 0 WHERE :prompt <> ''"), {"prompt": secret})
    assert secret not in "".join(traceback.format_exception(error.value))


def test_a_connection_that_the_server_closed_while_it_rested_is_replaced_unnoticed(shop: Shop) -> None:
    whose = text("SELECT pg_backend_pid()")
    ledger = Ledger(create_ledger_engine(shop.url, pool_size=1))
    try:
        with ledger.begin() as session:
            before = session.scalar(whose)
        with ledger.begin() as session:
            assert session.scalar(whose) == before, "it is kept"
        shop.execute(f"SELECT pg_terminate_backend({before}, 5000)")
        with ledger.begin() as session:
            assert session.scalar(whose) != before
    finally:
        ledger.close()


def test_a_process_that_keeps_one_connection_has_four_while_it_needs_them(shop: Shop) -> None:
    ledger = Ledger(create_ledger_engine(shop.url, pool_size=1))
    try:
        with ExitStack() as stack:
            at_once = [stack.enter_context(ledger.look()) for _ in range(4)]
            assert len({connection.scalar(text("SELECT pg_backend_pid()")) for connection in at_once}) == 4
        assert ledger.engine.pool.checkedin() == 1  # type: ignore[attr-defined]
    finally:
        ledger.close()


def test_a_connection_to_which_the_server_said_something_is_used_again(shop: Shop) -> None:
    whose = text("SELECT pg_backend_pid()")
    ledger = Ledger(create_ledger_engine(shop.url, pool_size=1))
    try:
        with ledger.begin() as session:
            before = session.scalar(whose)
            session.execute(text("LISTEN news"))
        shop.execute("NOTIFY news")
        with ledger.begin() as session:
            assert session.scalar(whose) == before
    finally:
        ledger.close()


def test_a_statement_of_psycopg_s_own_is_in_the_session_s_transaction(shop: Shop) -> None:
    shop.tenant()
    rename = Statement("UPDATE tenant SET provider = %(provider)s RETURNING name, provider")
    with shop.ledger.begin() as session:
        row = rename.one(session, {"provider": "another"})
        assert (row.name, row.provider) == ("acme", "another")
        assert session.scalar(text("SELECT provider FROM tenant")) == "another"
        session.rollback()
    assert shop.rows("SELECT provider FROM tenant")[0].provider != "another"
    with shop.ledger.begin() as session:
        assert Statement("NOTIFY news").all(session) == []
        assert Statement("SELECT 1 WHERE false").one(session) is None


def test_its_errors_are_those_of_any_other_statement_and_name_no_value(shop: Shop) -> None:
    secret = "my private prompt"
    with pytest.raises(DBAPIError) as error, shop.ledger.begin() as session:
        Statement("SELECT 1 / 0 WHERE %(prompt)s <> ''").all(session, {"prompt": secret})
    assert secret not in "".join(traceback.format_exception(error.value))


def test_a_connection_that_breaks_under_it_is_replaced(shop: Shop) -> None:
    ledger, whose = Ledger(create_ledger_engine(shop.url, pool_size=1)), Statement("SELECT pg_backend_pid() AS pid")
    try:
        with ledger.begin() as session:
            before = whose.one(session).pid
            shop.execute(f"SELECT pg_terminate_backend({before}, 5000)")
            with pytest.raises(OperationalError) as error:
                whose.all(session)
            session.rollback()
        assert error.value.connection_invalidated
        with ledger.begin() as session:
            assert whose.one(session).pid != before
    finally:
        ledger.close()


def test_a_look_keeps_its_connection_commits_by_itself_and_leaves_half_of_the_pool_to_transactions(shop: Shop) -> None:
    ledger, whose = Ledger(create_ledger_engine(shop.url, pool_size=1)), Statement("SELECT pg_backend_pid() AS pid")
    try:
        with ledger.look() as first, ledger.look() as second:
            before = whose.one(first).pid
            assert whose.one(second).pid != before
            Statement("CREATE TABLE looked_at ()").all(first)
            assert shop.scalar("SELECT count(*) FROM looked_at") == 0
            shop.execute("DROP TABLE looked_at")
        with ledger.look() as looking, ledger.begin() as session:
            kept = whose.one(looking).pid
            assert whose.one(session).pid != kept
        with ledger.look() as looking:
            assert whose.one(looking).pid == kept
        with suppress(TimeoutError), ledger.look() as looking:
            looking.connection.driver_connection.pgconn.send_query(b"SELECT pg_sleep(0.3)")
            raise TimeoutError  # as a limit of a worker's does in the middle of a statement
        with ledger.look() as looking:
            kept = whose.one(looking).pid
        shop.execute(f"SELECT pg_terminate_backend({kept}, 5000)")
        with ledger.look() as looking:
            replaced = whose.one(looking).pid
            assert replaced != kept
            shop.execute(f"SELECT pg_terminate_backend({replaced}, 5000)")
            with pytest.raises(OperationalError):
                whose.all(looking)
        with ledger.look() as looking:
            assert whose.one(looking).pid != replaced
    finally:
        ledger.close()
    assert shop.scalar(f"SELECT count(*) FROM pg_stat_activity WHERE pid = {replaced}") == 0
