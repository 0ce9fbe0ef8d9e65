"""The words that rules look for, read from data that an operator can extend, found in one pass over the tokens.

`routing/vocabulary.yaml` holds groups of phrases. A phrase is a row of words: `a|b` is a choice, a trailing `?` makes a
word optional, a trailing `~` stands for all forms of a verb, `..` skips up to six tokens of the same sentence, and
`<quote>`, `<path>`, `<url>`, `<num>`, `<tag>`, `<code>`, `<colon>` stand for a token of that kind, and `@name` for the
words of a list under `words`. A word also matches its plural.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import product
from typing import NamedTuple

import yaml

from routing.errors import PolicyError
from routing.tokens import Kind, Token, fold_word, singular

_GAP = ".."
_GAP_TOKENS = 6
_MAX_VARIANTS = 600
_WORD = re.compile(r"(?:[^\W_]+(?:'[^\W_]+)*(?:\.[a-z]+)?|<(?:quote|path|url|num|tag|code|colon)>)")
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f]")
_KIND_WORDS = {
    Kind.QUOTE: "<quote>",
    Kind.PATH: "<path>",
    Kind.URL: "<url>",
    Kind.DOMAIN: "<url>",
    Kind.NUMBER: "<num>",
    Kind.TAG: "<tag>",
    Kind.CODE: "<code>",
    Kind.FENCE: "<code>",
}
_ENDS = frozenset({Kind.STOP, Kind.QUESTION})


class Hit(NamedTuple):
    """A phrase of a group, found at the tokens `first` to `last` (both included)."""

    first: int
    last: int


Hits = Mapping[str, Sequence[Hit]]


class _Phrase(NamedTuple):
    group: str
    rest: tuple[frozenset[str] | None, ...]
    """The words after the first; None is a gap."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """All groups, indexed by the first word of each phrase."""

    words: Mapping[str, frozenset[str]]
    """Groups of single words that rules look up one by one."""
    bases: Mapping[str, str]
    """The verb that each listed form belongs to (`tests`: `test`)."""
    because: Mapping[str, str]
    """What a hit of a group means, in words for a site owner."""
    index: Mapping[str, tuple[_Phrase, ...]]
    unspaced: tuple[tuple[str, str], ...]
    """(text, group) of phrases in scripts that put no blanks between words."""
    version: str

    def find(self, tokens: Sequence[Token], shown: str) -> dict[str, list[Hit]]:
        """Return every phrase found, by group, in the order of the text."""
        hits: dict[str, list[Hit]] = {}
        index = self.index
        keys = [_keys(token) for token in tokens]
        for at, names in enumerate(keys):
            following = keys[at + 1] if at + 1 < len(keys) else _END
            for key in names:
                for phrase in index.get(key, ()):
                    second = phrase.rest[0] if phrase.rest else None
                    if second is not None and second.isdisjoint(following):
                        continue  # the common case, without a call
                    last = _match(keys, at, phrase.rest) if phrase.rest else at
                    if last >= 0:
                        found = hits.setdefault(phrase.group, [])
                        if not found or found[-1] != (at, last):
                            found.append(Hit(at, last))
        if not shown.isascii() and _UNSPACED.search(shown):
            self._find_unspaced(tokens, hits)
        return hits

    def _find_unspaced(self, tokens: Sequence[Token], hits: dict[str, list[Hit]]) -> None:
        for at, token in enumerate(tokens):
            if token.kind is Kind.WORD and _UNSPACED.search(token.word):
                for text, group in self.unspaced:
                    if text in token.word:
                        hits.setdefault(group, []).append(Hit(at, at))


_END = ("\n",)
"""The key of what closes a sentence: no phrase reaches over it."""


def _keys(token: Token) -> tuple[str, ...]:
    if token.kind is Kind.WORD:
        single = singular(token.word)
        return (token.word,) if single == token.word else (token.word, single)
    if token.kind in _ENDS:
        return _END
    if token.word == ":":
        return ("<colon>",)
    word = _KIND_WORDS.get(token.kind)
    return (word, token.word) if word else ()


def _match(keys: Sequence[tuple[str, ...]], at: int, rest: tuple[frozenset[str] | None, ...]) -> int:
    """Return the index of the last token of a match that starts at `at`, or -1."""
    position = at
    for number, wanted in enumerate(rest):
        if wanted is None:
            return _match_after_gap(keys, position, rest[number + 1 :])
        position += 1
        if position >= len(keys) or wanted.isdisjoint(keys[position]):
            return -1
    return position


def _match_after_gap(keys: Sequence[tuple[str, ...]], position: int, rest: tuple[frozenset[str] | None, ...]) -> int:
    for skipped in range(_GAP_TOKENS + 1):
        start = position + skipped
        if skipped and (start >= len(keys) or keys[start] is _END):
            return -1
        last = _match(keys, start, rest)
        if last >= 0:
            return last
    return -1


# --- reading the data file -------------------------------------------------------------------------------------------


def parse_vocabulary(text: str, *, source: str) -> Vocabulary:
    """Read a vocabulary from YAML text.

    Args:
        text: the YAML document.
        source: what to call it in an error.

    Raises:
        PolicyError: the operator's fault; names source, line and rule.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise PolicyError(f"{source}, line {line}: {error.problem}") from None
    reader = _Reader(source)
    sections = dict(reader.pairs(root, "the document"))
    for name in sections.keys() - {"words", "phrases"}:
        raise PolicyError(f"{source}: `{name}` is not a section; there are words and phrases")
    for name in ("words", "phrases"):
        if name not in sections:
            raise PolicyError(f"{source}: the section `{name}` is missing")
    for name, node in reader.pairs(sections["words"], "words"):
        reader.lists[name] = reader.words(node, name)
    for name, node in reader.pairs(sections["phrases"], "phrases"):
        reader.read_group(name, node)
    version = hashlib.sha256(text.encode()).hexdigest()[:12]
    index = {key: tuple(value) for key, value in reader.index.items()}
    return Vocabulary(reader.lists, reader.bases, reader.because, index, tuple(reader.unspaced), version)


@cache
def shipped_vocabulary() -> Vocabulary:
    """Return the vocabulary that ships with the product."""
    text = (resources.files("routing") / "vocabulary.yaml").read_text(encoding="utf-8")
    return parse_vocabulary(text, source="routing/vocabulary.yaml")


class _Reader:
    """Collects groups from YAML nodes, which still know their lines."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lists: dict[str, frozenset[str]] = {}
        self.bases: dict[str, str] = {}
        self.because: dict[str, str] = {}
        self.index: dict[str, list[_Phrase]] = {}
        self.unspaced: list[tuple[str, str]] = []

    def refuse(self, node: yaml.Node | None, rule: str) -> PolicyError:
        line = node.start_mark.line + 1 if node is not None else 1
        return PolicyError(f"{self.source}, line {line}: {rule}")

    def pairs(self, node: yaml.Node | None, name: str) -> Iterator[tuple[str, yaml.Node]]:
        if not isinstance(node, yaml.MappingNode):
            raise self.refuse(node, f"{name} must be a mapping")
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                raise self.refuse(key, f"`{key.value}` stands twice in {name}")
            seen.add(key.value)
            yield key.value, value

    def scalars(self, node: yaml.Node, name: str) -> Iterator[yaml.ScalarNode]:
        if not isinstance(node, yaml.SequenceNode):
            raise self.refuse(node, f"{name} must be a list")
        for item in node.value:
            if not isinstance(item, yaml.ScalarNode) or not item.value.strip():
                raise self.refuse(item, f"every entry of {name} must be text")
            yield item

    def words(self, node: yaml.Node, name: str) -> frozenset[str]:
        found: set[str] = set()
        for item in self.scalars(node, name):
            base = item.value.removesuffix("~")
            if " " in item.value or not _WORD.fullmatch(base):
                raise self.refuse(item, f"{name}: `{item.value}` must be one word")
            forms = _spellings(fold_word(base), item.value.endswith("~"))
            if item.value.endswith("~"):
                self.bases.update(dict.fromkeys(forms, base))
            found.update(forms)
        return frozenset(found)

    def listed(self, item: yaml.Node, name: str) -> frozenset[str]:
        if name not in self.lists:
            raise self.refuse(item, f"`@{name}` is not a list under words")
        return self.lists[name]

    def read_group(self, name: str, node: yaml.Node) -> None:
        fields = dict(self.pairs(node, name))
        for field in fields.keys() - {"because", "match"}:
            raise self.refuse(fields[field], f"{name}: `{field}` is not a field; there are because and match")
        if "match" not in fields:
            raise self.refuse(node, f"{name}: the list `match` is missing")
        self.because[name] = str(fields["because"].value) if "because" in fields else ""
        for item in self.scalars(fields["match"], name):
            if _UNSPACED.search(item.value):
                self.unspaced.append((fold_word(item.value), name))
                continue
            for variant in self._variants(item, name):
                first = variant[0]
                if first is None or variant[-1] is None:
                    raise self.refuse(item, f"{name}: `{item.value}` must begin and end with a word")
                for word in sorted(first):
                    self.index.setdefault(word, []).append(_Phrase(name, variant[1:]))

    def _variants(self, item: yaml.ScalarNode, name: str) -> list[tuple[frozenset[str] | None, ...]]:
        """Expand optional words; choices stay together in one set."""
        choices: list[list[frozenset[str] | str | None]] = []
        for part in item.value.split():
            if part == _GAP:
                choices.append([None])
                continue
            optional = part.endswith("?")
            found: set[str] = set()
            for word in part.removesuffix("?").split("|"):
                if word.startswith("@"):
                    found.update(self.listed(item, word[1:]))
                    continue
                base = word.removesuffix("~")
                if not _WORD.fullmatch(base):
                    raise self.refuse(item, f"{name}: `{part}` in `{item.value}` is not a word")
                found.update(_spellings(fold_word(base), word.endswith("~")))
            choices.append([frozenset(found), "skip"] if optional else [frozenset(found)])
        variants = list(product(*choices))
        if len(variants) > _MAX_VARIANTS:
            raise self.refuse(item, f"{name}: `{item.value}` has too many optional words")
        return [tuple(part for part in variant if not isinstance(part, str)) for variant in variants]


def _spellings(word: str, is_verb: bool) -> set[str]:
    found = {word}
    if is_verb:
        found |= _verb_forms(word)
    return found | {form.replace("'", "") for form in found if "n't" in form or "'s" in form}


_DOUBLING = re.compile(r"(?:[^aeiou]|qu)[aeiou][bdgmnprt]")


def _verb_forms(verb: str) -> set[str]:
    """Return the regular forms of an English verb; irregular ones are listed in the data."""
    if verb.endswith("e"):
        return {verb, verb + "s", verb + "d", (verb[:-2] + "y" if verb.endswith("ie") else verb[:-1]) + "ing"}
    if verb.endswith("y") and verb[-2:-1] not in "aeiou":
        return {verb, verb[:-1] + "ies", verb[:-1] + "ied", verb + "ing"}
    plural = verb + ("es" if verb.endswith(("s", "x", "z", "ch", "sh", "o")) else "s")
    forms = {verb, plural, verb + "ed", verb + "ing"}
    if _DOUBLING.fullmatch(verb[-3:]) or _DOUBLING.fullmatch(verb[-4:]):
        forms |= {verb + verb[-1] + "ed", verb + verb[-1] + "ing"}
    return forms
