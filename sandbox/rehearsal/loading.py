"""Reads scenario files, and says file and line for everything that is wrong with one."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from routing.errors import YamlRefusedError
from routing.located import LocatedDocument, read_located
from sandbox.rehearsal.errors import ScenarioError
from sandbox.rehearsal.scenario import Rule, Scenario

_SHOWN_ERRORS = 10
_MAX_BYTES = 4_194_304
"""Of a scenario file; its author is whoever runs the rehearsal model."""


def parse_scenario(text: str, *, source: str) -> Scenario:
    """Read one scenario file.

    Args:
        text: the YAML document.
        source: what to call it in an error.

    Raises:
        ScenarioError: its author's fault; one line `source:LINE: place: rule` for each mistake.
    """
    try:
        document = read_located(text, max_bytes=_MAX_BYTES)
        return Scenario.model_validate(document.value)
    except YamlRefusedError as error:
        raise ScenarioError(f"{source}:{max(1, error.line)}: {error.rule}") from None
    except ValidationError as error:
        found = error.errors(include_url=False)[:_SHOWN_ERRORS]
        raise ScenarioError("\n".join(_describe(item, document, source) for item in found)) from None


def load_rules(paths: Iterable[Path], *, faults: bool = False) -> tuple[Rule, ...]:
    """Return the rules of scenario files in order, then the shipped ones.

    Args:
        paths: files, or directories whose `*.yaml` are taken in the order of their names.
        faults: whether the shipped `faults.yaml` is played, after the given files.

    Raises:
        ScenarioError: the author's fault, or a file cannot be read.
    """
    rules: list[Rule] = []
    for path in paths:
        files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
        for file in files:
            rules += parse_scenario(_read(file), source=str(file)).rules
    for name in ("faults.yaml", "default.yaml") if faults else ("default.yaml",):
        text = (resources.files("sandbox.rehearsal.scenarios") / name).read_text(encoding="utf-8")
        rules += parse_scenario(text, source=name).rules
    return tuple(rules)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ScenarioError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ScenarioError(f"{file}: is not UTF-8 text") from None


def _describe(item: Any, document: LocatedDocument, source: str) -> str:
    place = ".".join(str(part) for part in item["loc"]) or "the document"
    line = document.line_of(item["loc"])
    return f"{source}:{line}: {place}: {item['msg'].removeprefix('Value error, ')}"
