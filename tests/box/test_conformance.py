"""What every kind of box promises, asked of each kind."""

import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from sandbox.box import Box
from sandbox.box_spec import MEBIBYTE
from sandbox.docker.box import DockerMaker
from sandbox.errors import BoxFrozenError, BoxLostError
from sandbox.execution import Clocks, Ending
from sandbox.tarball import CollectRules
from sites.content_store import ContentStore
from sites.errors import PathRefusedError, TreeRefusedError
from tests.played_cli import LocalBoxMaker

pytestmark = pytest.mark.timeout(900)

CLOCKS = Clocks(soft_seconds=60, hard_seconds=65, grace_seconds=1)
"""For what is not about clocks: no command comes near them, however busy the machine is."""
RULES = CollectRules(max_bytes=100_000)
IN_OPEN_BOX = {"sub/x": b""}


@pytest.fixture(params=["local", pytest.param("container", marks=pytest.mark.docker)])
def any_maker(request: pytest.FixtureRequest) -> LocalBoxMaker | DockerMaker:
    return LocalBoxMaker() if request.param == "local" else request.getfixturevalue("maker")


@pytest.fixture
def any_box(any_maker: LocalBoxMaker | DockerMaker) -> Iterator[Box]:
    made = any_maker.create()
    yield made
    made.close()


@pytest.fixture(scope="module", params=["local", pytest.param("container", marks=pytest.mark.docker)])
def any_open_box(request: pytest.FixtureRequest) -> Iterator[Box]:
    """One for all tests of its kind that leave it as it was: a container takes a second of the processor."""
    if request.param == "container":
        made = request.getfixturevalue("open_box")
        made.put(IN_OPEN_BOX)
        yield made
        return
    made = LocalBoxMaker().create()
    made.put(IN_OPEN_BOX)
    yield made
    made.close()


def shell(box: Box, script: str, **fields: object) -> tuple[Ending, int | None, str]:
    result = box.run(["bash", "-c", script], **({"clocks": CLOCKS} | fields))  # type: ignore[arg-type]
    return result.ending, result.exit_code, (result.stdout + result.stderr).decode()


@pytest.mark.req("H-039", "H-079", "S-063")
@pytest.mark.threat("D1")
def test_files_go_in_change_and_come_out_but_no_bad_name_and_nothing_that_a_tool_would_obey_and_a_closed_box_is_closed(
    any_box: Box, content_store: ContentStore
) -> None:
    with pytest.raises(PathRefusedError):
        any_box.put({"../x": b"x"})
    files = {"index.html": b"<p>hi</p>", "a/b/c.css": b"p{}", "\u00fcn\u00ef \u00e9.txt": b"", "gone.txt": b"x"}
    planted = {name: b"{}" for name in ("CLAUDE.md", ".claude/settings.json", "a/.mcp.json", ".git/config", ".npmrc")}
    injected = any_box.put(files | planted)
    assert (injected.files, injected.bytes, injected.dropped) == (4, 13, tuple(sorted(planted)))

    ending, code, _ = shell(
        any_box, "rm gone.txt; echo new >a/new.txt; mkdir -p node_modules/.bin empty; ln -s x node_modules/.bin/y"
    )
    assert (ending, code) == (Ending.EXITED, 0)

    collected = any_box.collect(content_store, RULES)
    del files["gone.txt"]
    assert content_store.read_tree(collected) == files | {"a/new.txt": b"new\n"}
    assert any_box.collect(content_store, RULES) == collected

    any_box.close()
    any_box.close()
    with pytest.raises(BoxLostError):
        any_box.run(["true"], clocks=CLOCKS)
    with pytest.raises(BoxLostError):
        any_box.put({"a": b"x"})
    with pytest.raises(BoxLostError):
        any_box.collect(content_store, RULES)


def test_a_command_has_stdin_environment_directory_and_status(any_open_box: Box) -> None:
    result = any_open_box.run(
        ["bash", "-c", 'cat; echo "$WORD $(basename "$PWD")"; echo no >&2; exit 7'],
        clocks=CLOCKS,
        stdin=b"line\n" * 50_000,
        env={"WORD": "a b"},
        cwd="/workspace/sub",
    )

    assert (result.ending, result.exit_code, result.is_success) == (Ending.EXITED, 7, False)
    assert result.stdout == b"line\n" * 50_000 + b"a b sub\n"
    assert result.stderr == b"no\n"


def test_a_word_of_an_argument_is_never_split_or_obeyed(any_open_box: Box) -> None:
    words = ["--flag", "a b", "$(id)", "`id`", "x;y", "\n", ""]
    result = any_open_box.run(["printf", "<%s>", *words], clocks=CLOCKS)

    assert (result.ending, result.exit_code) == (Ending.EXITED, 0), result.stderr
    assert result.stdout.decode() == "".join(f"<{word}>" for word in words)


def test_a_command_that_does_not_read_its_stdin_is_no_failure(any_open_box: Box) -> None:
    assert any_open_box.run(["true"], clocks=CLOCKS, stdin=b"x" * 3_000_000).is_success


def test_a_command_that_does_not_exist_is_a_result(any_open_box: Box) -> None:
    assert any_open_box.run(["no-such-command"], clocks=CLOCKS).exit_code == 127


def test_lines_come_while_the_command_runs(any_box: Box) -> None:
    seen: list[bytes] = []
    result = any_box.run(
        ["bash", "-c", "echo a; echo b; sleep 30"],
        clocks=CLOCKS,
        on_line=lambda line: seen.append(line) or line != b"b",
    )  # type: ignore[func-returns-value]

    assert (seen, result.ending, result.stdout) == ([b"a", b"b"], Ending.STOPPED, b"")
    assert result.seconds < 15
    with pytest.raises(BoxFrozenError):
        any_box.run(["true"], clocks=CLOCKS)


def test_what_a_callers_line_reader_raises_goes_on_and_the_box_is_frozen(any_box: Box) -> None:
    def fail(line: bytes) -> bool:
        raise KeyError(line)

    with pytest.raises(KeyError):
        any_box.run(["bash", "-c", "echo a; sleep 30"], clocks=CLOCKS, on_line=fail)
    with pytest.raises(BoxFrozenError):
        any_box.run(["true"], clocks=CLOCKS)


def test_the_soft_clock_lets_a_command_end_well(any_open_box: Box) -> None:
    script = "trap 'echo saved; exit 5' INT; echo on; while :; do sleep 0.1; done"
    result = any_open_box.run(["bash", "-c", script], clocks=Clocks(soft_seconds=1, hard_seconds=20, grace_seconds=5))

    assert result.ending is Ending.SOFT_TIMEOUT
    assert result.stdout == b"on\nsaved\n"
    assert any_open_box.run(["true"], clocks=CLOCKS).is_success


@pytest.mark.threat("A11")
def test_a_command_that_ignores_every_signal_is_ended_all_the_same(any_box: Box, content_store: ContentStore) -> None:
    any_box.put({"a": b"1"})
    script = "trap '' INT TERM; echo 2 >b; while :; do sleep 0.1; done"
    result = any_box.run(["bash", "-c", script], clocks=Clocks(soft_seconds=1, hard_seconds=20, grace_seconds=1))

    assert result.ending is Ending.SOFT_TIMEOUT
    assert result.seconds < 15
    assert content_store.read_tree(any_box.collect(content_store, RULES)) == {"a": b"1", "b": b"2\n"}


@pytest.mark.threat("A9")
def test_endless_output_is_cut_and_the_work_is_kept(any_box: Box, content_store: ContentStore) -> None:
    result = any_box.run(["bash", "-c", "echo kept >a; exec yes"], clocks=CLOCKS)

    assert (result.ending, len(result.stdout)) == (Ending.OUTPUT_LIMIT, 10 * MEBIBYTE)
    assert result.seconds < 15
    assert content_store.read_tree(any_box.collect(content_store, RULES)) == {"a": b"kept\n"}


@pytest.mark.threat("A10")
def test_an_endless_line_is_cut(any_box: Box) -> None:
    result = any_box.run(["bash", "-c", "tr '\\0' x </dev/zero"], clocks=CLOCKS, on_line=lambda line: None)

    assert result.ending is Ending.LINE_LIMIT


@pytest.mark.threat("D2")
@pytest.mark.threat("E")
def test_what_must_not_come_out_refuses_the_whole_output(any_box: Box, content_store: ContentStore) -> None:
    lay = {
        "planted": "mkdir planted/.claude; echo {} >planted/.claude/settings.json",
        "symlink": "ln -s /etc/passwd symlink/link",
        "hardlink": "ln hardlink/x hardlink/y",
    }
    any_box.put({f"{reason}/x": b"x" for reason in lay})
    assert shell(any_box, "; ".join(lay.values()))[:2] == (Ending.EXITED, 0)

    for reason in lay:
        with pytest.raises((TreeRefusedError, PathRefusedError)) as caught:
            any_box.collect(content_store, CollectRules(max_bytes=100_000, ignored=frozenset(lay) - {reason}))
        assert caught.value.reason == reason


def test_files_go_in_before_the_first_command_only(any_open_box: Box) -> None:
    any_open_box.run(["true"], clocks=CLOCKS)

    with pytest.raises(BoxFrozenError):
        any_open_box.put({"a": b"x"})


WAITS = ("bash", "-c", 'trap "echo interrupted; exit 3" INT; echo "$$ $WORD"; cat; sleep 0.1; echo end')


def test_a_command_that_stands_by_goes_on_with_the_first_run_of_just_it(any_box: Box) -> None:
    any_box.stand_by(WAITS, env={"WORD": "a"}, token="t")
    any_box.put({"a.txt": b"laid while it waits"})
    _, _, others = shell(any_box, "true")
    assert others == ""

    any_box.stand_by(WAITS, env={"WORD": "b"}, token="u")
    first = any_box.run(WAITS, env={"WORD": "b"}, clocks=CLOCKS, stdin=b"work\n")
    second = any_box.run(WAITS, env={"WORD": "b"}, clocks=CLOCKS, stdin=b"more\n")

    assert any_box.token == "u"
    assert (first.ending, first.exit_code, second.exit_code) == (Ending.EXITED, 0, 0)
    (number, word, *rest), again = first.stdout.split(), second.stdout.split()
    assert (word, rest, again[2:]) == (b"b", [b"work", b"end"], [b"more", b"end"])
    assert number != again[0]


def test_a_command_that_stands_by_ends_when_any_other_is_run(any_open_box: Box) -> None:
    script = ("bash", "-c", 'cat; echo "$WORD" >>ended')
    for other in ({"env": {"WORD": "b"}}, {"env": {"WORD": "a"}, "cwd": "/workspace/sub"}):
        any_open_box.stand_by(script, env={"WORD": "a"})
        assert any_open_box.run(script, clocks=CLOCKS, stdin=b"work\n", **other).stdout == b"work\n"
        until_two = "until [ $(cat {.,sub}/ended | wc -l) = 2 ]; do sleep 0.1; done"
        ending, _, said = shell(any_open_box, f"{until_two}; cat {{.,sub}}/ended; rm -f {{.,sub}}/ended")
        assert ending is Ending.EXITED, f"what stood by has not ended: {said}"
        assert sorted(word for word in said.split() if len(word) == 1) == sorted(["a", other["env"]["WORD"]])


def test_the_clocks_of_a_command_that_stood_by_begin_with_its_work_and_end_it_although_its_parent_ignored_interrupts(
    any_open_box: Box,
) -> None:
    script = ("bash", "-c", 'trap "echo interrupted; exit 3" INT; read -r line; while :; do sleep 0.1; done')
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a script's `pointsman worker &`
    try:
        any_open_box.stand_by(script, env={})
    finally:
        signal.signal(signal.SIGINT, before)
    time.sleep(1.5)
    clocks = Clocks(soft_seconds=1, hard_seconds=20, grace_seconds=5)
    result = any_open_box.run(script, clocks=clocks, stdin=b"work\n")
    assert (result.ending, result.exit_code, result.stdout) == (Ending.SOFT_TIMEOUT, 3, b"interrupted\n")
    assert 1 <= result.seconds < 6


def test_a_command_runs_in_a_process_with_a_thousand_open_files_as_a_pool_of_threads_is(any_open_box: Box) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    with ExitStack() as opened:
        for _ in range(1100):
            opened.enter_context(open(os.devnull))
        assert shell(any_open_box, "cat; echo on", stdin=b"in\n") == (Ending.EXITED, 0, "in\non\n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_child_that_stays_behind_holds_up_no_result_and_a_box_closed_under_a_command_is_lost_whatever_its_status(
    any_box: Box,
) -> None:
    result = any_box.run(["bash", "-c", "setsid sleep 60 & echo done"], clocks=CLOCKS)
    assert (result.ending, result.stdout) == (Ending.EXITED, b"done\n")
    assert result.seconds < 10

    result = any_box.run(["bash", "-c", "echo on; sleep 60"], clocks=CLOCKS, on_line=lambda line: any_box.close())
    assert (result.ending, result.exit_code) == (Ending.BOX_LOST, None)
    with pytest.raises(BoxLostError):
        result.check_box()
