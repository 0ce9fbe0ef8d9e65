from __future__ import annotations

import contextvars
import io
import json
import logging
import multiprocessing
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring import logs
from monitoring.logs import JsonFormatter, bind, clear, configure_logging

logger = logging.getLogger("pointsman.test")
KEY = "sk-ant-api03-" + "a" * 40


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    out = io.StringIO()
    clear()
    configure_logging(stream=out, level="DEBUG")
    yield out
    clear()
    root.handlers[:] = handlers
    root.setLevel(level)


def only(lines: io.StringIO) -> dict[str, Any]:
    (line,) = lines.getvalue().splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.mark.req("S-028")
def test_a_line_says_when_how_bad_where_and_what(lines: io.StringIO) -> None:
    logger.info("job_started", extra={"seconds": 1.5, "queue": "spec"})
    line = only(lines)
    assert datetime.fromisoformat(line.pop("ts")).utcoffset().total_seconds() == 0  # type: ignore[union-attr]
    assert line == {
        "level": "info",
        "logger": "pointsman.test",
        "event": "job_started",
        "seconds": 1.5,
        "queue": "spec",
    }


def test_every_line_of_a_context_names_its_job_until_it_is_cleared(lines: io.StringIO) -> None:
    bind(job_id="j1", attempt=2)
    bind(tier=None, queue="spec")
    logger.info("one")
    clear()
    logger.info("two")
    one, two = (json.loads(line) for line in lines.getvalue().splitlines())
    assert (one["job_id"], one["attempt"], one["queue"]) == ("j1", 2, "spec")
    assert "tier" not in one
    assert "job_id" not in two


def test_an_unknown_context_field_is_refused() -> None:
    with pytest.raises(TypeError, match="prompt"):
        bind(prompt="make it blue")


def test_contexts_do_not_leak_into_each_other(lines: io.StringIO) -> None:
    bind(job_id="outer")
    contextvars.Context().run(logger.info, "elsewhere")
    thread = threading.Thread(target=logger.info, args=("in a thread",))
    thread.start()
    thread.join()
    logger.info("here")
    assert [json.loads(line).get("job_id") for line in lines.getvalue().splitlines()] == [None, None, "outer"]


def test_an_exception_is_one_field_of_one_line(lines: io.StringIO) -> None:
    try:
        raise ValueError(f"bad key {KEY}")
    except ValueError:
        logger.exception("attempt_failed")
    line = only(lines)
    assert line["exception"].startswith("Traceback")
    assert "ValueError: bad key [redacted]" in line["exception"]


@pytest.mark.req("S-080", "S-084")
def test_secrets_are_redacted_wherever_they_stand(lines: io.StringIO) -> None:
    bind(worker=KEY)
    logger.warning("called with %s", KEY, extra={"header": f"Bearer {'x' * 30}", "deep": {"list": [KEY, ("a", KEY)]}})
    assert KEY not in lines.getvalue()
    assert "x" * 30 not in lines.getvalue()
    assert only(lines)["event"] == "called with [redacted]"
    assert only(lines)["deep"] == {"list": ["[redacted]", ["a", "[redacted]"]]}


def test_long_text_is_cut(lines: io.StringIO) -> None:
    logger.info("event", extra={"text": "x" * 100_000})
    assert len(lines.getvalue()) < logs.MAX_TEXT + 300


def test_a_secret_at_the_cut_is_not_left_in_half(lines: io.StringIO) -> None:
    logger.info("event", extra={"text": "x" * (logs.MAX_TEXT - 20) + " " + KEY})
    assert "sk-ant" not in lines.getvalue()


def test_extra_cannot_replace_the_fields_of_the_line(lines: io.StringIO) -> None:
    logger.info("event", extra={"level": "none", "ts": "never", "logger": "other", "event": "forged"})
    assert only(lines)["event"] == "event"
    assert only(lines)["level"] == "info"


_leaves = st.one_of(st.text(), st.floats(), st.integers(), st.none(), st.binary())
_values = st.recursive(
    _leaves, lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)), max_leaves=8
)


@given(_values)
def test_any_value_makes_one_line_of_valid_json(value: object) -> None:
    record = logging.makeLogRecord({"msg": "event", "levelname": "INFO", "name": "n", "value": value})
    line = JsonFormatter().format(record)
    assert "\n" not in line
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_configuring_again_does_not_double_the_lines(lines: io.StringIO) -> None:
    again = io.StringIO()
    configure_logging(stream=again)
    logger.info("once")
    logger.debug("not at all")
    assert lines.getvalue() == ""
    assert len(again.getvalue().splitlines()) == 1


def _log_in_child() -> None:
    bind(attempt=1)
    logger.info("in_child")
    for handler in logging.getLogger().handlers:
        handler.flush()


def test_a_forked_child_logs_with_the_context_it_inherits(tmp_path: Any) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    with (tmp_path / "log").open("w+") as out:
        configure_logging(stream=out)
        bind(job_id="j1")
        child = multiprocessing.get_context("fork").Process(target=_log_in_child)
        child.start()
        child.join(10)
        logger.info("in_parent")
        clear()
        root.handlers[:] = handlers
        root.setLevel(level)
    first, second = (json.loads(line) for line in (tmp_path / "log").read_text().splitlines())
    assert (first["event"], first["job_id"], first["attempt"]) == ("in_child", "j1", 1)
    assert (second["event"], second["job_id"], second.get("attempt")) == ("in_parent", "j1", None)
