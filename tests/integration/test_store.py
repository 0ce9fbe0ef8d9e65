"""The way into the ledger: what its connections and its errors are like."""

import traceback

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from tests.factories import Shop


def test_an_error_of_the_ledger_names_no_value_of_a_statement(shop: Shop) -> None:
    secret = "my private prompt"
    with pytest.raises(DBAPIError) as error, shop.ledger.begin() as session:
        session.execute(text("SELECT 1 / 0 WHERE :prompt <> ''"), {"prompt": secret})
    assert secret not in "".join(traceback.format_exception(error.value))
