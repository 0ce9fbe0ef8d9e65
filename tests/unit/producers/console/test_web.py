"""Session cookies: signed, of one key, and over in time; a form's token belongs to one session alone."""

from uuid import uuid4

import pytest

from producers.console.web import ConsoleSession, Sessions

A_SESSION = ConsoleSession(uuid4(), "nonce")
KEY = "key-of-the-tests-0123456789-0123456789"


def test_a_cookie_names_its_key_and_a_changed_one_names_nothing() -> None:
    sessions = Sessions([KEY])
    cookie = sessions.open(A_SESSION)
    found = sessions.read(cookie)
    assert found is not None
    assert found == A_SESSION
    for at in range(0, len(cookie), 5):
        changed = cookie[:at] + ("A" if cookie[at] != "A" else "B") + cookie[at + 1 :]
        assert sessions.read(changed) is None, at


def test_a_new_signing_key_leaves_open_sessions_open_and_a_foreign_one_opens_none() -> None:
    cookie = Sessions([KEY]).open(A_SESSION)
    assert Sessions(["another-" + KEY, KEY]).read(cookie) is not None
    assert Sessions(["another-" + KEY]).read(cookie) is None


@pytest.mark.parametrize("cookie", ["", "x", "a.b.c", "é" * 50, "A" * 5_000])
def test_what_is_no_cookie_of_ours_names_nobody(cookie: str) -> None:
    assert Sessions([KEY]).read(cookie) is None


def test_a_form_belongs_to_its_own_session() -> None:
    sessions, other_session = Sessions([KEY]), ConsoleSession(A_SESSION.holder, "other")
    mine, other = (sessions.read(sessions.open(each)) for each in (A_SESSION, other_session))
    assert mine is not None
    assert other is not None
    token = sessions.form_token(mine)
    assert sessions.is_own_form(mine, token)
    assert not sessions.is_own_form(other, token), "the same key, in another browser"
    assert not sessions.is_own_form(mine, "")
    assert not sessions.is_own_form(mine, "\ud800")
