"""Templates of scenario files: Jinja in its sandbox, over the groups of the match and a few safe functions.

What was asked enters as a value and is never compiled, so a prompt that looks like a template stays text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sandbox.rehearsal.errors import ScenarioError
from sandbox.rehearsal.words import key_words, sentence, slug, title

_WHOLE = re.compile(r"\s*\{\{((?:(?!\{\{|\}\}).)+)\}\}\s*", re.DOTALL)
_KEPT_FILTERS = frozenset(
    {"upper", "lower", "trim", "replace", "truncate", "tojson", "default", "first", "last", "join"}
)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, autoescape=False)
    environment.filters = {name: environment.filters[name] for name in _KEPT_FILTERS}
    environment.filters |= {"slug": slug, "title": title, "sentence": sentence, "key_words": key_words}
    environment.globals.clear()
    return environment


_ENVIRONMENT = _environment()


@lru_cache(maxsize=4096)
def _compiled(text: str) -> Template:
    return _ENVIRONMENT.from_string(text)


@lru_cache(maxsize=4096)
def _expression(text: str) -> Any:
    return _ENVIRONMENT.compile_expression(text, undefined_to_none=False)


def check_templates(value: Any) -> None:
    """Compile every template in a value of nested dicts and lists.

    Raises:
        ValueError: the scenario author's fault; says what is wrong with the template.
    """
    if isinstance(value, str):
        try:
            _expression(whole[1]) if (whole := _WHOLE.fullmatch(value)) else _compiled(value)
        except TemplateError as error:
            raise ValueError(f"template: {error}") from None
    elif isinstance(value, Mapping):
        for item in value.values():
            check_templates(item)
    elif isinstance(value, list | tuple):
        for item in value:
            check_templates(item)


def render_text(template: str, variables: Mapping[str, Any]) -> str:
    """Fill a template in.

    Raises:
        ScenarioError: the scenario author's fault: it names a variable or does something that does not exist.
    """
    try:
        return _compiled(template).render(variables)
    except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise ScenarioError(f"template {template[:80]!r}: {error}") from None


def render_value(value: Any, variables: Mapping[str, Any]) -> Any:
    """Fill in every template in a value of nested dicts and lists; a text that is one expression keeps its type.

    Raises:
        ScenarioError: the scenario author's fault.
    """
    if isinstance(value, str):
        if (whole := _WHOLE.fullmatch(value)) is None:
            return render_text(value, variables)
        return _evaluate(whole[1], variables)
    if isinstance(value, Mapping):
        return {str(key): render_value(item, variables) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [render_value(item, variables) for item in value]
    return value


def _evaluate(expression: str, variables: Mapping[str, Any]) -> Any:
    try:
        result = _expression(expression)(**variables)
    except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise ScenarioError(f"template {expression[:80]!r}: {error}") from None
    if isinstance(result, StrictUndefined):
        raise ScenarioError(f"template {expression[:80]!r}: a variable is not defined")
    return list(result) if isinstance(result, tuple) else result
