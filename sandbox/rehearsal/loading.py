"""Reads scenario files, and says file and line for everything that is wrong with one."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from sandbox.rehearsal.errors import ScenarioError
from sandbox.rehearsal.scenario import Rule, Scenario

_SHOWN_ERRORS = 10


def parse_scenario(text: str, *, source: str) -> Scenario:
    """Read one scenario file.

    Args:
        text: the YAML document.
        source: what to call it in an error.

    Raises:
        ScenarioError: its author's fault; one line `source:LINE: place: rule` for each mistake.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        _refuse_repeated_keys(node, source)
        document = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ScenarioError(f"{source}:{line}: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ScenarioError(f"{source}:1: {error}") from None
    try:
        return Scenario.model_validate(document)
    except ValidationError as error:
        lines = [_describe(item, node, source) for item in error.errors(include_url=False)[:_SHOWN_ERRORS]]
        raise ScenarioError("\n".join(lines)) from None


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


def _refuse_repeated_keys(node: yaml.Node | None, source: str) -> None:
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated_keys(item, source)
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if key.value in seen:
                raise ScenarioError(f"{source}:{key.start_mark.line + 1}: {key.value} stands here twice")
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
            _refuse_repeated_keys(value, source)


def _describe(item: Any, node: yaml.Node | None, source: str) -> str:
    place = ".".join(str(part) for part in item["loc"]) or "the document"
    return f"{source}:{_line_of(item['loc'], node)}: {place}: {item['msg'].removeprefix('Value error, ')}"


def _line_of(location: tuple[int | str, ...], node: yaml.Node | None) -> int:
    """Return the line of the deepest node that a location leads to."""
    line = 1
    for part in location:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == part), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line
