"""Scenario files: which requests a rule matches, and what it replies, breaks or overcharges.

A file is a YAML document `{rules: [...]}`; the first rule that matches is played. scenarios/README.md shows the format.
Prompts enter templates as values and are never compiled, so a prompt that looks like a template stays text.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from jinja2 import StrictUndefined, TemplateError
from jinja2 import Template as Compiled
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import AfterValidator, Field, ValidationError, model_validator

from gateway.errors import GatewayError
from gateway.fake_provider.library import Library, read_library
from gateway.fake_provider.request import Request, example_of, key_words, plain, quoted, sentence, slug, title, words
from gateway.fake_provider.wire import Text, ToolUse
from routing.config import Section
from routing.errors import YamlRefusedError
from routing.policy.project import read_yaml

_SHOWN_ERRORS = 10
_MAX_BYTES = 4_194_304
"""Limit of a scenario file."""
_CONVERSATIONS = 65_536
"""Number of `times` counters to keep; the least recently used are dropped."""
_WHOLE = re.compile(r"\s*\{\{((?:(?!\{\{|\}\}).)+)\}\}\s*", re.DOTALL)
_FILE_NAME = re.compile(r"\w[\w./-]*\.[A-Za-z][A-Za-z0-9]{0,4}\b")
_KEPT_FILTERS = """
upper lower trim replace truncate tojson default first last join list length select
selectattr reject unique map max min sort string
"""


class ScenarioError(GatewayError, ValueError):
    """A scenario file or rule is invalid (its author's fault); the message names file and line, or the rule."""


def _nearest(paths: Iterable[str], text: str) -> list[str]:
    """Return paths ordered by how many words they share with a text; index pages first among equals."""
    wanted = {word.casefold() for word in words(text) if len(word) > 2}
    return sorted(
        paths, key=lambda path: (-sum(word in path.casefold() for word in wanted), not path.endswith("index.html"))
    )


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, autoescape=False)
    environment.filters = {name: environment.filters[name] for name in _KEPT_FILTERS.split()}
    environment.filters |= {
        "slug": slug,
        "title": title,
        "sentence": sentence,
        "key_words": key_words,
        "plain": plain,
        "quoted": quoted,
        "html": html.escape,
        "nearest": _nearest,
        "file_names": lambda text: list(dict.fromkeys(_FILE_NAME.findall(text))),
        "found": lambda text, pattern: _pattern(pattern).findall(text),
        "merge": lambda first, second: {**first, **second},
        "example": lambda schema, about: example_of(schema, about=about),
    }
    environment.tests["matching"] = lambda text, pattern: _pattern(pattern).search(text) is not None
    environment.globals.clear()
    return environment


@lru_cache(maxsize=4096)
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


_ENVIRONMENT = _environment()


@lru_cache(maxsize=4096)
def _compiled(text: str) -> Compiled:
    return _ENVIRONMENT.from_string(text)


@lru_cache(maxsize=4096)
def _expression(text: str) -> Any:
    return _ENVIRONMENT.compile_expression(text, undefined_to_none=False)


def _check_template(value: Any) -> Any:
    if isinstance(value, str):
        try:
            _expression(whole[1]) if (whole := _WHOLE.fullmatch(value)) else _compiled(value)
        except TemplateError as error:
            raise ValueError(f"template: {error}") from None
    elif isinstance(value, Mapping):
        _check_template([*value, *value.values()])
    elif isinstance(value, list | tuple):
        for item in value:
            _check_template(item)
    return value


def _check_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return pattern


def render(value: Any, variables: Mapping[str, Any]) -> Any:
    """Render every template in nested dicts and lists; a text that is a single expression keeps its type.

    Raises:
        ScenarioError: the scenario author's fault: a template fails or uses an undefined variable.
    """
    if isinstance(value, Mapping):
        return {str(render(key, variables)): render(item, variables) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [render(item, variables) for item in value]
    if not isinstance(value, str):
        return value
    whole = _WHOLE.fullmatch(value)
    try:
        result = _expression(whole[1])(**variables) if whole else _compiled(value).render(variables)
    except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise ScenarioError(f"template {value[:80]!r}: {error}") from None
    if isinstance(result, StrictUndefined):
        raise ScenarioError(f"template {value[:80]!r}: a variable is not defined")
    return list(result) if isinstance(result, tuple) else result


Pattern = Annotated[str, AfterValidator(_check_pattern)]
"""A case-insensitive regular expression; `.` matches newlines. Its groups are template variables."""
Template = Annotated[str, AfterValidator(_check_template)]
Responder = Literal["recorded", "code_agent", "run_agent", "site_edit", "site_patch", "site_translation"]
Tokens = Annotated[int, Field(ge=0, le=10_000_000)]


class When(Section):
    """Conditions on a request. An omitted field matches everything."""

    model: str | None = None
    tools: tuple[str, ...] = ()
    """Globs; each must match an offered tool."""
    forced_tool: str | None = None
    prompt: Pattern | None = None
    system: Pattern | None = None
    tool_result: bool | None = None
    structured: bool | None = None
    turn: Annotated[int, Field(ge=1)] | None = None
    tag: str | None = Field(default=None, pattern=r"^[a-z0-9-]{1,40}$")
    check: Template | None = None
    """An expression that must be true."""


class Wordy(Section):
    """A long reply of filler text."""

    tokens: Annotated[int, Field(gt=0, le=100_000)]


class Say(Section):
    """One block of a reply: exactly one of text, tool or wordy."""

    text: Template | None = None
    tool: Template | None = None
    """Name of the tool to use; `input` holds its input."""
    input: Annotated[dict[str, Any], AfterValidator(_check_template)] = Field(default_factory=dict)
    wordy: Wordy | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if sum(value is not None for value in (self.text, self.tool, self.wordy)) != 1:
            raise ValueError("give exactly one of text, tool and wordy")
        if self.input and self.tool is None:
            raise ValueError("input belongs to tool")
        return self


class UsageOverride(Section):
    """Tokens to bill instead of those counted."""

    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    cache_write_tokens: Tokens | None = None
    cache_read_tokens: Tokens | None = None


class Fault(Section):
    """An injected fault."""

    kind: Literal["status", "stall", "cut", "malformed"]
    after_characters: Annotated[int, Field(ge=0)] = 0
    """Characters of the reply sent before the fault; 0 = before anything, including the HTTP status."""
    status: Annotated[int, Field(ge=400, le=599)] = 529
    retry_after_seconds: Annotated[float, Field(ge=0, le=3600)] | None = None
    seconds: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """Length of a stall, after which the reply continues if the client is still there."""


class PaceOverride(Section):
    """This rule's own speed, even with `--speed max`."""

    first_token_seconds: Annotated[float, Field(ge=0, le=3600)]
    tokens_per_second: Annotated[float, Field(gt=0)]


class Rule(Section):
    """What to play for matching requests.

    A rule with neither `say` nor `responder` adds its fault, usage and pace to the reply of the next rule that matches.
    """

    name: Annotated[str, Field(min_length=1, max_length=80)]
    """Name of the rule in the request log."""
    when: When = When()
    times: Annotated[int, Field(gt=0)] | None = None
    """How often the rule is played; then the next match takes over."""
    times_per: Literal["server", "conversation"] = "server"
    """Whether `times` counts all requests, or those of one conversation (with a tag: of one tagged line)."""
    say: tuple[Say, ...] | None = None
    responder: Responder | None = None
    """The library, which plays a recorded reply where it has one, or the code that improvises the reply."""
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal", "pause_turn"] | None = None
    usage: UsageOverride = UsageOverride()
    fault: Fault | None = None
    pace: PaceOverride | None = None

    @model_validator(mode="after")
    def _check_reply(self) -> Self:
        if self.say is not None and self.responder is not None:
            raise ValueError("give only one of say and responder")
        if self.stop_reason is not None and not self.has_reply:
            raise ValueError("stop_reason belongs to say or responder")
        return self

    @property
    def has_reply(self) -> bool:
        """Whether the rule has a reply of its own."""
        return self.say is not None or self.responder is not None


class Scenario(Section):
    """A scenario file."""

    rules: tuple[Rule, ...] = Field(min_length=1)


def parse_scenario(text: str, *, source: str) -> Scenario:
    """Parse one scenario file; `source` is its name in errors.

    Raises:
        ScenarioError: its author's fault; one line `source:LINE: place: rule` for each mistake.
    """
    try:
        document = read_yaml(text, max_bytes=_MAX_BYTES)
        return Scenario.model_validate(document.value)
    except YamlRefusedError as error:
        raise ScenarioError(f"{source}:{max(1, error.line)}: {error.rule}") from None
    except ValidationError as error:
        mistakes = [
            f"{source}:{document.line_of(item['loc'])}: {'.'.join(map(str, item['loc'])) or 'the document'}: "
            f"{item['msg'].removeprefix('Value error, ')}"
            for item in error.errors(include_url=False)[:_SHOWN_ERRORS]
        ]
        raise ScenarioError("\n".join(mistakes)) from None


def load_rules(paths: Iterable[Path], *, faults: bool = False) -> tuple[Rule, ...]:
    """Return the rules of the given scenario files, then the shipped ones.

    Of a directory its `*.yaml` are read in order of name. With `faults` the shipped `faults.yaml` follows the given
    files.

    Raises:
        ScenarioError: a file is invalid or unreadable.
    """
    rules: list[Rule] = []
    for path in paths:
        for file in sorted(path.glob("*.yaml")) if path.is_dir() else [path]:
            try:
                rules += parse_scenario(file.read_text(encoding="utf-8"), source=str(file)).rules
            except OSError as error:
                raise ScenarioError(f"{file}: cannot be read: {error.strerror}") from None
            except UnicodeDecodeError:
                raise ScenarioError(f"{file}: is not UTF-8 text") from None
    for name in ("faults.yaml", "default.yaml") if faults else ("default.yaml",):
        rules += _shipped_rules(name)
    return tuple(rules)


@cache
def _shipped_rules(name: str) -> tuple[Rule, ...]:
    return parse_scenario(shipped(name), source=name).rules


def shipped(name: str) -> str:
    """Return the text of a file in `scenarios/`."""
    return (resources.files("gateway.fake_provider") / "scenarios" / name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Match:
    """What to play: the rule that replies, and what it and the rules before it add."""

    name: str
    """Names of the rules in the order they matched, joined by `/`."""
    rule: Rule
    """The rule that replies, or the rule whose fault replaces the reply."""
    variables: Mapping[str, Any]
    """Template variables."""
    fault: Fault | None
    pace: PaceOverride | None
    usage: Mapping[str, int]
    """Tokens to bill instead of those counted, by field of `Usage`."""
    recorded: Sequence[Text | ToolUse] = ()
    """The reply of the library, for a rule that plays it."""

    @property
    def refusal(self) -> Fault | None:
        """The fault, if it is an HTTP error instead of a reply."""
        return self.fault if self.fault and self.fault.kind == "status" and not self.fault.after_characters else None


@dataclass
class RuleBook:
    """A server's rules and how often each was played."""

    rules: Sequence[Rule]
    library: Callable[[], Library] = read_library
    """Read when its rule is reached for the first time."""
    _played: OrderedDict[tuple[int, str], int] = field(default_factory=OrderedDict)

    def match(self, request: Request) -> Match | None:
        """Return what to play for a request and count its rules; None when no rule replies."""
        names: list[str] = []
        fault, pace = None, None
        usage: dict[str, int] = {}
        for index, rule in enumerate(self.rules):
            variables = _variables(rule.when, request)
            if variables is None or not self._may_play(index, rule, request):
                continue
            recorded = self.library().find(request) if rule.responder == "recorded" else ()
            if rule.responder == "recorded" and not recorded:
                continue
            names.append(rule.name)
            fault, pace = fault or rule.fault, pace or rule.pace
            usage = rule.usage.model_dump(exclude_none=True) | usage
            found = Match("/".join(names), rule, variables, fault, pace, usage, recorded)
            if rule.has_reply or found.refusal:
                return found
        return None

    def _may_play(self, index: int, rule: Rule, request: Request) -> bool:
        if rule.times is None:
            return True
        key = (index, "" if rule.times_per == "server" else _conversation(request, rule.when.tag))
        played = self._played.get(key, 0)
        if played >= rule.times:
            return False
        self._played[key] = played + 1
        self._played.move_to_end(key)
        while len(self._played) > _CONVERSATIONS:
            self._played.popitem(last=False)
        return True


def _variables(when: When, request: Request) -> dict[str, Any] | None:
    """Return the template variables of a matching request, otherwise None.

    The patterns' groups appear under their name, or as `prompt_1`, `system_1` and so on.
    """
    if not _has_shape(when, request):
        return None
    groups: dict[str, Any] = {}
    for name, pattern, text in (("prompt", when.prompt, request.prompt), ("system", when.system, request.system)):
        if pattern is None:
            continue
        if (found := _pattern(pattern).search(text)) is None:
            return None
        groups |= {f"{name}_{number}": group or "" for number, group in enumerate(found.groups(), start=1)}
        groups |= {key: group or "" for key, group in found.groupdict().items()}
    variables = {
        "prompt": request.prompt,
        "ask": request.ask,
        "question": request.question,
        "system": request.system,
        "model": request.body.model,
        "turn": request.turn,
        "tools": list(request.tool_names),
        "tool": request.forced_tool.name if request.forced_tool else next(iter(request.tool_names), ""),
        "tool_results": [result.text for result in request.tool_results],
        "results": request.tool_results,
        "schema": request.output_schema or {},
        **groups,
    }
    return variables if when.check is None or render(when.check, variables) else None


def _has_shape(when: When, request: Request) -> bool:
    forced = request.forced_tool.name if request.forced_tool else ""
    return (
        fnmatchcase(request.body.model, when.model or "*")
        and fnmatchcase(forced, when.forced_tool or "*")
        and all(any(fnmatchcase(name, glob) for name in request.tool_names) for glob in when.tools)
        and when.tool_result in (None, request.has_tool_result)
        and when.structured in (None, request.output_schema is not None)
        and when.turn in (None, request.turn)
        and (when.tag is None or when.tag in request.tags)
    )


def _conversation(request: Request, tag: str | None) -> str:
    """Identify a conversation by its first text; for a tagged rule by the line with the tag, which retries repeat."""
    about = request.user_texts[0] if request.user_texts else ""
    if tag is not None:
        lines = (line for text in request.user_texts for line in text.splitlines())
        about = next((line for line in lines if f"[rehearse:{tag}]" in line), about)
    return hashlib.sha256(about.encode("utf-8", "surrogatepass")).hexdigest()
