"""The way into the ledger: what its connections and its errors are like."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, OperationalError

from ledger.store import Ledger, Statement, create_ledger_engine
from tests.factories import Shop

WHOSE = Statement("SELECT pg_backend_pid()")


@pytest.fixture
def single(shop: Shop) -> Iterator[Ledger]:
    """A ledger of which a process keeps one connection."""
    with closing(Ledger(create_ledger_engine(shop.url, pool_size=1))) as ledger:
        yield ledger


def test_a_connection_that_the_server_closed_while_it_rested_is_replaced_unnoticed(shop: Shop, single: Ledger) -> None:
    with single.begin() as session:
        before = WHOSE.scalar(session)
    with single.begin() as session:
        assert WHOSE.scalar(session) == before, "it is kept"
    shop.execute(f"SELECT pg_terminate_backend({before}, 5000)")
    with single.begin() as session:
        assert WHOSE.scalar(session) != before


def test_a_process_that_keeps_one_connection_has_four_while_it_needs_them(single: Ledger) -> None:
    with ExitStack() as stack:
        at_once = [stack.enter_context(single.look()) for _ in range(4)]
        assert len({WHOSE.scalar(connection) for connection in at_once}) == 4
    assert single.engine.pool.checkedin() == 1  # type: ignore[attr-defined]


def test_a_connection_to_which_the_server_said_something_is_used_again(shop: Shop, single: Ledger) -> None:
    with single.begin() as session:
        before = WHOSE.scalar(session)
        session.execute(text("LISTEN news"))
    shop.execute("NOTIFY news")
    with single.begin() as session:
        assert WHOSE.scalar(session) == before


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


@pytest.mark.parametrize(
    "run",
    [
        lambda session, values: session.execute(text("SELECT 1 / 0 WHERE :prompt <> ''"), values),
        lambda session, values: Statement("SELECT 1 / 0 WHERE %(prompt)s <> ''").all(session, values),
    ],
    ids=["SQLAlchemy's", "psycopg's"],
)
def test_an_error_of_the_ledger_names_no_value_of_a_statement(shop: Shop, run: Callable[..., object]) -> None:
    secret = "my private prompt"
    with pytest.raises(DBAPIError) as error, shop.ledger.begin() as session:
        run(session, {"prompt": secret})
    assert secret not in "".join(traceback.format_exception(error.value))


def test_a_connection_that_breaks_under_it_is_replaced(shop: Shop, single: Ledger) -> None:
    with single.begin() as session:
        before = WHOSE.scalar(session)
        shop.execute(f"SELECT pg_terminate_backend({before}, 5000)")
        with pytest.raises(OperationalError) as error:
            WHOSE.all(session)
        session.rollback()
    assert error.value.connection_invalidated
    with single.begin() as session:
        assert WHOSE.scalar(session) != before


def test_a_look_keeps_its_connection_commits_by_itself_and_leaves_half_of_the_pool_to_transactions(
    shop: Shop, single: Ledger
) -> None:
    with single.look() as first, single.look() as second:
        assert WHOSE.scalar(second) != WHOSE.scalar(first)
        Statement("CREATE TABLE looked_at ()").all(first)
        assert shop.scalar("SELECT count(*) FROM looked_at") == 0
        shop.execute("DROP TABLE looked_at")
    with single.look() as looking, single.begin() as session:
        kept = WHOSE.scalar(looking)
        assert WHOSE.scalar(session) != kept
    with single.look() as looking:
        assert WHOSE.scalar(looking) == kept
    with suppress(TimeoutError), single.look() as looking:
        looking.connection.driver_connection.pgconn.send_query(b"SELECT pg_sleep(0.3)")
        raise TimeoutError  # as a limit of a worker's does in the middle of a statement
    with single.look() as looking:
        kept = WHOSE.scalar(looking)
    shop.execute(f"SELECT pg_terminate_backend({kept}, 5000)")
    with single.look() as looking:
        replaced = WHOSE.scalar(looking)
        assert replaced != kept
        shop.execute(f"SELECT pg_terminate_backend({replaced}, 5000)")
        with pytest.raises(OperationalError):
            WHOSE.all(looking)
    with single.look() as looking:
        assert WHOSE.scalar(looking) != replaced
    single.close()
    assert shop.scalar(f"SELECT count(*) FROM pg_stat_activity WHERE pid = {replaced}") == 0
