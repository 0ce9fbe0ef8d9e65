"""Session cookies: signed, of one key, and over in time; a form's token belongs to one session alone."""

from collections.abc import Mapping
from hashlib import sha256
from uuid import UUID, uuid4

import pytest

from producers.console.web import ConsoleSession, Sessions, load_templates
from producers.use_cases.changes import Comparison, compare
from sites.content_store import Entry
from sites.files import media_type_of
from sites.spec.fonts.families import font_files

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


def test_files_of_fonts_are_counted_beside_the_changes_and_not_listed_among_them() -> None:
    def shown(files: Mapping[str, bytes]) -> str:
        blobs = {sha256(data).hexdigest(): data for data in files.values()}
        after = {path: Entry(sha256(data).hexdigest(), len(data), media_type_of(path)) for path, data in files.items()}
        listed = tuple(compare({}, after, read=blobs.__getitem__))
        changes = Comparison(before=None, after=UUID(int=1), added=len(files), removed=0, changed=0, changes=listed)
        macros = load_templates().get_template("macros.html").make_module({})
        return str(macros.changes_shown(changes))  # type: ignore[attr-defined]

    planted = {"fonts/inter-1-LICENSE.txt": b"x", "fonts/mine.woff2": b"x", "index.html": b"x"}
    page = shown({**font_files(["inter-1", "figtree-1"]), **planted})
    assert [part.partition("<")[0] for part in page.split('<code class="path">')[1:]] == [*planted]
    assert "Not listed: 5 files of fonts that come with Pointsman" in page
    assert page.count(" open>") == 3
    assert "Not listed" not in shown({"index.html": b"x"})
