"""What of an agent's files is taken, and what is dropped with which reason."""

import base64
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.policy.agents import Runtime, is_covered
from routing.policy.platform import platform_policy
from sites.errors import PathRefusedError
from sites.files import check_path, check_tree
from sites.repository.trees import LeftOut, Snapshot
from sites.repository.workspace import Difference
from workers.runs.api_runner import run_api
from workers.runs.cli_runners import run_claude_code, run_codex
from workers.runs.step import RUNNERS, Accepted, Dropped, collect_output, holds_key, with_kept

BASE = {"README.md": b"# Shop\n", "src/app.ts": b"app\n", "src/cart.ts": b"cart\n", "tests/a.test.ts": b"a\n"}
QA = platform_policy().agents["qa"].writes
KEY = "ps-installation-key-0123456789abcdef"


@pytest.mark.req("S-055", "S-063", "P-032", "S-126")
def test_every_runtime_is_served_by_its_own_runner() -> None:
    assert {"api": run_api, "claude_code": run_claude_code, "codex_local": run_codex} == RUNNERS
    assert set(get_args(Runtime)) == set(RUNNERS)


def take(
    after: dict[str, bytes | None],
    *,
    writes: tuple[str, ...] = ("src/", "tests/"),
    before: Snapshot | None = None,
    given: dict[str, bytes] | None = None,
    keys: tuple[str, ...] = (),
) -> Accepted:
    snapshot = before or Snapshot(BASE)
    laid = {**snapshot.files, ".agent-context/index.md": b"index\n", **(given or {})}
    left = {path: data for path, data in {**laid, **after}.items() if data is not None}
    return collect_output(snapshot, laid, left, may_write=lambda path: is_covered(path, writes), known_keys=keys)


def test_what_is_written_within_the_paths_is_taken_and_what_is_unchanged_is_no_change() -> None:
    taken = take({"src/app.ts": b"new\n", "src/new.ts": b"n\n", "src/cart.ts": None, "README.md": b"# Shop\n"})

    assert taken.changes == {"src/app.ts": b"new\n", "src/new.ts": b"n\n", "src/cart.ts": None}
    assert taken.dropped == ()


@pytest.mark.req("S-008")
def test_a_reviewer_changes_no_source_whatever_it_writes() -> None:
    taken = take({"src/app.ts": b"x\n", "src/cart.ts": None, "lib/x.ts": b"x\n", "tests/b.test.ts": b"b\n"}, writes=QA)

    assert taken.changes == {"tests/b.test.ts": b"b\n"}
    assert taken.dropped == (
        Dropped("lib/x.ts", "not_allowed"),
        Dropped("src/app.ts", "not_allowed"),
        Dropped("src/cart.ts", "not_allowed"),
    )
    assert taken.report() == ("lib/x.ts: not_allowed", "src/app.ts: not_allowed", "src/cart.ts: not_allowed")


@pytest.mark.threat("D2", "E1")
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("src/.npmrc", "planted"),
        ("src/CLAUDE.md", "planted"),
        ("src/.git/hooks/pre-commit", "planted"),
        ("src/con.ts", "device_name"),
        ("src/../../etc/passwd", "parent"),
        ("src/a\u202eb.ts", "direction"),
        ("src/cafe\u0301.ts", "unicode_form"),
        (".agent-context/index.md", "context"),
        ("src/APP.ts", "name_collision"),
        ("src/app.ts/below.ts", "file_as_directory"),
        ("artifacts/x.md", "not_allowed"),
    ],
)
def test_a_write_that_breaks_a_rule_is_dropped_with_its_reason(path: str, reason: str) -> None:
    taken = take({path: b"mine\n", "src/fine.ts": b"fine\n"})

    assert taken.changes == {"src/fine.ts": b"fine\n"}
    assert taken.dropped == (Dropped(path, reason),)


def test_nothing_is_written_where_something_stands_that_the_agent_does_not_see() -> None:
    before = Snapshot(BASE, (LeftOut("src/vendor", "submodule"), LeftOut("src/link", "symlink")))
    taken = take(
        {"src/vendor/x.js": b"x\n", "src/link": b"x\n", "src/LINK": b"x\n", "src/linked.ts": b"x\n"}, before=before
    )

    assert set(taken.changes) == {"src/linked.ts"}
    assert {drop.reason for drop in taken.dropped} == {"hidden"}


@pytest.mark.req("S-080")
def test_a_file_with_a_new_secret_is_dropped_and_one_that_had_it_before_is_its_owner_s() -> None:
    secret = b"key: AKIAQ3EGRIPYH7TLW2XN\n"
    before = Snapshot({**BASE, "src/old.ts": secret})
    taken = take({"src/new.ts": secret, "src/old.ts": secret + b"more\n", "src/fine.ts": b"fine\n"}, before=before)

    assert set(taken.changes) == {"src/old.ts", "src/fine.ts"}
    assert taken.dropped == (Dropped("src/new.ts", "secret"),)


@pytest.mark.req("S-085")
@pytest.mark.parametrize(
    "hide", [lambda key: key, lambda key: base64.b64encode(b"x" + key), lambda key: key.hex().encode()]
)
def test_the_value_of_a_key_of_this_installation_is_found_in_every_shape(hide: object) -> None:
    data = b"const a = '" + hide(KEY.encode()) + b"';\n"  # type: ignore[operator]
    assert take({"src/new.ts": data}, keys=(KEY,)).keys == ("src/new.ts",)
    assert holds_key("x.json", data, (KEY,))
    assert not holds_key("x.json", b"nothing", (KEY,))


def test_a_report_is_bounded_and_says_how_many_it_does_not_name() -> None:
    taken = take({f"dist/{number}.js": b"x" for number in range(200)})
    assert len(taken.report()) == 51
    assert taken.report()[-1] == "and 150 more"


NAMES = st.lists(
    st.sampled_from(["src", "tests", "app.ts", "App.ts", "..", ".git", "x", "é", "e\u0301", "a b", ".", "con"]),
    min_size=1,
    max_size=4,
).map("/".join)


@given(st.dictionaries(NAMES, st.one_of(st.none(), st.binary(max_size=8)), max_size=12))
def test_whatever_an_agent_leaves_what_is_taken_makes_a_tree_that_every_file_system_holds(
    after: dict[str, bytes | None],
) -> None:
    taken = take(after)
    result = {path: data for path, data in {**BASE, **taken.changes}.items() if data is not None}

    check_tree(result)
    for path in taken.changes:
        assert path.startswith(("src/", "tests/"))
        try:
            assert check_path(path) == path
        except PathRefusedError:
            pytest.fail(path)


def test_the_files_that_an_earlier_try_left_are_laid_but_for_those_that_others_have_changed_since() -> None:
    files = {"a": b"1", "b": b"1", "c": b"others", "d": b"1"}
    kept = {
        "a": Difference(b"1", b"2"),
        "b": Difference(b"1", None),
        "c": Difference(b"1", b"2"),
        "new": Difference(None, b"2"),
        "gone": Difference(b"1", b"2"),
    }
    assert with_kept(files, kept) == {"a": b"2", "c": b"others", "d": b"1", "new": b"2"}
