"""The five trivial commands of seed 002, and the grammar that a prompt must match as a whole (ruling A10).

What matches runs from an argument vector, never through a shell, with no option that reads or writes a file.
"""

from __future__ import annotations

import re

TRIVIAL_COMMANDS = ("pwd", "date", "whoami", "echo", "ping")
"""Exactly these; `ls` and `cat` read files and are no part of it."""

_MAX_LENGTH = 1000
_DATE_ARGUMENT = re.compile(
    r"-u|--utc|--universal|-R|--rfc-email|-I(?:date|hours|minutes|seconds|ns)?"
    r"|--iso-8601(?:=(?:date|hours|minutes|seconds|ns))?|--rfc-3339=(?:date|seconds|ns)|\+[%A-Za-z0-9:./,_-]{1,100}",
)
_SHELL = re.compile(r"[|&;<>`\\(){}\[\]*?!~#\x00-\x1f\x7f\u2028\u2029]|\$(?![A-Z_])")
_QUOTED = re.compile(r"'[^'\x00-\x1f\x7f\u2028\u2029]*'|\"[^\"$`\\!\x00-\x1f\x7f\u2028\u2029]*\"")
"""What a shell would print as it stands."""
_PROSE = re.compile(
    r"\b(?:the|our|my|your|this|these|those)\s+(?:\S+\s+){0,2}?(?:pages?|site|website|hero|header|footer|tagline|headline|heading"
    r"|title|section|logo|menu|banner|text|form|button|intro|slogan|home\w*|top|bottom)\b",
    re.IGNORECASE,
)
"""Who says `echo the tagline below` means a page; who prints a text seldom says so."""
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*\.?", re.IGNORECASE)
_IPV6 = re.compile(r"[0-9a-f:]{2,39}", re.IGNORECASE)
_SCHEME = re.compile(r"https?://", re.IGNORECASE)


def parse_trivial(prompt: str) -> tuple[str, ...] | None:
    """Return the argument vector of a trivial command, or None when the prompt is anything else.

    `echo` prints its words and expands nothing. A host is only checked for its form here; the worker holds the list of
    hosts that may be pinged.
    """
    line = prompt.strip(" \t\r\n")
    if len(line) > _MAX_LENGTH or "\n" in line or "\r" in line:
        return None
    words = line.split()
    command = words[0].lower() if words else ""
    if command in ("pwd", "whoami"):
        return (command,) if len(words) == 1 else None
    if command == "date":
        return _date(words)
    if command == "echo":
        return _echo(line)
    return _ping(words) if command == "ping" else None


def _date(words: list[str]) -> tuple[str, ...] | None:
    if len(words) > 4 or not all(_DATE_ARGUMENT.fullmatch(word) for word in words[1:]):
        return None
    return ("date", *words[1:])


def _echo(line: str) -> tuple[str, ...] | None:
    text = line[4:].strip()
    if _SHELL.search(_QUOTED.sub("", text)) or _PROSE.search(text):
        return None
    return ("echo", text) if text else ("echo",)


def _ping(words: list[str]) -> tuple[str, ...] | None:
    if len(words) != 2:
        return None
    host = _SCHEME.sub("", words[1]).removesuffix("/")
    if _HOST.fullmatch(host) or (":" in host and _IPV6.fullmatch(host)):
        return ("ping", host.lower())
    return None
