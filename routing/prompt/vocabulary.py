"""The words that rules look for: groups of phrases read from YAML and found in one pass over a prompt's tokens.

In `routing/prompt/vocabulary.yaml` a phrase is a row of words: `a|b` is a choice, a trailing `?` makes a word optional,
a trailing `~` stands for all forms of a verb, `..` skips up to six tokens of the same sentence, `<quote>`, `<path>`,
`<url>`, `<email>`, `<num>`, `<tag>`, `<code>` and `<colon>` stand for tokens of that kind, and `@name` for the words of
a list under `words`. A word also matches its plural.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import resources
from itertools import chain, product
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import yaml

from routing.errors import PolicyError
from routing.prompt.tokens import WORD, Kind, Token, fold_word, singular
from routing.yaml_data import LOADER

UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f]")
"""Letters of scripts without blanks between words."""
_GAP_TOKENS = 6
_KIND_WORDS = {
    Kind.QUOTE: "<quote>",
    Kind.PATH: "<path>",
    Kind.URL: "<url>",
    Kind.DOMAIN: "<url>",
    Kind.EMAIL: "<email>",
    Kind.NUMBER: "<num>",
    Kind.TAG: "<tag>",
    Kind.CODE: "<code>",
    Kind.FENCE: "<code>",
}
_END = ("\n",)
"""The key of the end of a sentence or prompt, which no phrase crosses."""
_ENDS = frozenset({Kind.STOP, Kind.QUESTION})

Words = frozenset[str]


class Hit(NamedTuple):
    """A phrase found at the tokens `first` to `last` (inclusive)."""

    first: int
    last: int


class _Phrase(NamedTuple):
    """A phrase matched up to some word."""

    place: int
    """Position in the file, the order of phrases that begin at the same token."""
    group: str
    left: tuple[Words | None, ...]
    """The words allowed at each place still to match; None is a gap. A whole phrase begins and ends with words."""


_Found = tuple[int, str, int]
"""Place, group and last token of a matched phrase."""


@dataclass(slots=True)
class _Node:
    """A node of the tree of phrases. What may follow it is made when a prompt first asks for it: few parts ever are."""

    ended: tuple[_Phrase, ...]
    gapped: tuple[tuple[_Phrase, Words], ...]
    """The phrases that continue with a gap, each with the words of which one must follow it."""
    behind: Words
    """All of these words; if the prompt has none of them, no such phrase matches."""
    begun: Mapping[str, Sequence[_Phrase]]
    """What is left of the other phrases, by the next word."""
    made: dict[tuple[_Phrase, ...], _Node] = field(compare=False, repr=False)
    """The tree's nodes so far, which are shared: many words lead to the same phrases."""
    _following: dict[str, _Node] = field(default_factory=dict, compare=False, repr=False)

    def after(self, word: str) -> _Node | None:
        """Return the node to which a word leads."""
        node = self._following.get(word)
        if node is None and word in self.begun:
            left = tuple(self.begun[word])
            node = self._following[word] = self.made.get(left) or self.made.setdefault(left, _node(left, self.made))
        return node


def _node(phrases: tuple[_Phrase, ...], made: dict[tuple[_Phrase, ...], _Node]) -> _Node:
    following: dict[str, list[_Phrase]] = {}
    for place, group, left in phrases:
        if left and left[0] is not None:
            begun = _Phrase(place, group, left[1:])
            for word in left[0]:
                following.setdefault(word, []).append(begun)
    ended = tuple(phrase for phrase in phrases if not phrase.left)
    gaps = [phrase for phrase in phrases if phrase.left[:1] == (None,)]
    gapped = tuple((phrase, next(wanted for wanted in phrase.left if wanted is not None)) for phrase in gaps)
    behind = frozenset().union(*(words for _, words in gapped))
    return _Node(ended, gapped, behind, following, made)


def _read_on(node: _Node, keys: Sequence[tuple[str, ...]], at: int, present: set[str], found: list[_Found]) -> None:
    """Add the phrases that continue from a node after the token `at` and match."""
    for place, group, _ in node.ended:
        found.append((place, group, at))
    if node.gapped and not node.behind.isdisjoint(present):
        for (place, group, left), words in node.gapped:
            if not words.isdisjoint(present):
                last = _match(keys, at, left)
                if last >= 0:
                    found.append((place, group, last))
    for name in keys[at + 1]:
        if (further := node.after(name)) is not None:
            _read_on(further, keys, at + 1, present, found)


def _note(hits: dict[str, list[Hit]], first: int, found: list[_Found]) -> None:
    """Add the phrases that begin at one token, in the order of the file, each once."""
    for _, group, last in sorted(found):
        group_hits = hits.setdefault(group, [])
        if not group_hits or group_hits[-1] != (first, last):
            group_hits.append(Hit(first, last))


_Entry = tuple[tuple[str, ...], tuple[_Node, ...]]
"""A word and its singular, and the nodes of the phrases that begin with them."""
_MOST_ENTRIES = 8192


def _keys_of_mark(token: Token) -> tuple[str, ...]:
    if token.kind in _ENDS:
        return _END
    if token.word == ":":
        return ("<colon>",)
    word = _KIND_WORDS.get(token.kind)
    return (word, token.word) if word else ()


def _match(keys: Sequence[tuple[str, ...]], at: int, left: Sequence[Words | None]) -> int:
    """Return the last token of a match of `left` after `at`, or -1."""
    for number, wanted in enumerate(left):
        if wanted is None:
            return _match_after_gap(keys, at, left[number + 1 :])
        at += 1
        if wanted.isdisjoint(keys[at]):
            return -1
    return at


def _match_after_gap(keys: Sequence[tuple[str, ...]], at: int, left: Sequence[Words | None]) -> int:
    """Return the last token of the nearest match after a gap, or -1."""
    wanted = left[0]
    for start in range(at, at + _GAP_TOKENS + 1):
        if keys[start] == _END:
            return -1
        if wanted is not None and wanted.isdisjoint(keys[start + 1]):
            continue
        last = _match(keys, start, left)
        if last >= 0:
            return last
    return -1


_GAP = ".."
_MAX_VARIANTS = 600
_WORD = re.compile(r"(?:[^\W_]+(?:'[^\W_]+)*(?:\.[a-z]+)?|<(?:quote|path|url|email|num|tag|code|colon)>)")
_SECTIONS = ("words", "phrases")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Word lists and phrase groups."""

    words: Mapping[str, frozenset[str]]
    """Lists of words by name."""
    bases: Mapping[str, str]
    """The verb of each listed form (`tests`: `test`)."""
    because: Mapping[str, str]
    """What a hit of a group means, for the site owner."""
    phrases: _Node
    """The root of the tree of all phrases."""
    unspaced: tuple[tuple[str, str], ...]
    """(text, group) of phrases in scripts without blanks between words."""
    known: frozenset[str]
    """All its words, including some that only look misspelt."""
    version: str
    _entries: dict[str, _Entry] = field(default_factory=dict, compare=False, repr=False)
    """Caches, for the words met so far, their names and the phrases that begin with them."""

    def find(self, tokens: Sequence[Token], shown: str) -> dict[str, list[Hit]]:
        """Return every phrase found, by group, in the order of the text."""
        hits: dict[str, list[Hit]] = {}
        keys: list[tuple[str, ...]] = []
        begun: list[tuple[int, tuple[_Node, ...]]] = []
        for at, token in enumerate(tokens):
            if token.kind is WORD:
                names, openings = self._entries.get(token.word) or self._enter(token.word)
            else:
                names = _keys_of_mark(token)
                openings = self._openings(names)
            keys.append(names)
            if openings:
                begun.append((at, openings))
        keys.append(_END)
        present = set(chain.from_iterable(keys))
        for at, openings in begun:
            following = keys[at + 1]
            for opening in openings:
                if opening.ended or opening.gapped or not opening.begun.keys().isdisjoint(following):
                    found: list[_Found] = []
                    _read_on(opening, keys, at, present, found)
                    if found:
                        _note(hits, at, found)
        if not shown.isascii() and UNSPACED.search(shown):
            self._find_unspaced(tokens, hits)
        return hits

    def _openings(self, names: tuple[str, ...]) -> tuple[_Node, ...]:
        return tuple(node for name in names if (node := self.phrases.after(name)) is not None)

    def _enter(self, word: str) -> _Entry:
        if len(self._entries) >= _MOST_ENTRIES:
            self._entries.clear()
        single = singular(word)
        names = (word,) if single == word else (word, single)
        self._entries[word] = entry = names, self._openings(names)
        return entry

    def _find_unspaced(self, tokens: Sequence[Token], hits: dict[str, list[Hit]]) -> None:
        for at, token in enumerate(tokens):
            if token.kind is Kind.WORD and UNSPACED.search(token.word):
                for text, group in self.unspaced:
                    if text in token.word:
                        hits.setdefault(group, []).append(Hit(at, at))


@lru_cache(maxsize=64)
def union(*lists: frozenset[str]) -> frozenset[str]:
    """Return the union of word lists, cached."""
    return frozenset().union(*lists)


class VocabularyWords(NamedTuple):
    """A vocabulary, or an operator's extension of one, as YAML text."""

    text: str
    source: str
    """Its name in errors."""


def parse_vocabulary(whole: VocabularyWords, *extensions: VocabularyWords) -> Vocabulary:
    """Return a vocabulary with an operator's extensions.

    An extension has the same form but may omit sections; it can neither create a group nor change one's meaning. Lists
    are extended before phrases are read, so a new word counts wherever a phrase names `@list`.

    Raises:
        PolicyError: the operator's fault; names source, line and rule.
    """
    first = _Reader(whole.source)
    read = [(first, first.sections(whole.text))]
    for words in extensions:
        reader = _Reader(words.source, extends=first)
        read.append((reader, reader.sections(words.text)))
    for reader, sections in read:
        if "words" in sections:
            reader.read_lists(sections["words"])
    for reader, sections in read:
        if "phrases" in sections:
            reader.read_groups(sections["phrases"])
    return first.vocabulary("".join(words.text for words in (whole, *extensions)))


def _extend(*extensions: VocabularyWords) -> Vocabulary:
    shipped = (resources.files("routing.prompt") / "vocabulary.yaml").read_text(encoding="utf-8")
    return parse_vocabulary(VocabularyWords(shipped, "routing/prompt/vocabulary.yaml"), *extensions)


@cache
def shipped_vocabulary() -> Vocabulary:
    """Return the vocabulary that ships with the product."""
    return _extend()


def _read_words(path: Path) -> VocabularyWords:
    try:
        return VocabularyWords(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise PolicyError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PolicyError(f"{path}: cannot be read: it is not UTF-8") from None


class _Reader:
    """Collects groups from YAML nodes, which have line numbers."""

    def __init__(self, source: str, *, extends: _Reader | None = None) -> None:
        self.source = source
        self.is_extension = extends is not None
        """Whether groups must exist already and keep their meaning."""
        self.lists: dict[str, frozenset[str]] = extends.lists if extends else {}
        self.bases: dict[str, str] = extends.bases if extends else {}
        self.because: dict[str, str] = extends.because if extends else {}
        self.phrases: list[_Phrase] = extends.phrases if extends else []
        self.unspaced: list[tuple[str, str]] = extends.unspaced if extends else []

    def refuse(self, node: yaml.Node | None, rule: str) -> PolicyError:
        line = node.start_mark.line + 1 if node is not None else 1
        return PolicyError(f"{self.source}, line {line}: {rule}")

    def sections(self, text: str) -> dict[str, yaml.Node]:
        """Return the sections of a document, by name."""
        try:
            root = yaml.compose(text, Loader=LOADER)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 0
            raise PolicyError(f"{self.source}, line {line}: {error.problem}") from None
        except yaml.YAMLError:
            raise PolicyError(f"{self.source}: is no YAML text") from None
        sections = dict(self.pairs(root, "the document"))
        for name in sections.keys() - set(_SECTIONS):
            raise self.refuse(sections[name], f"`{name}` is not a section; there are words and phrases")
        for name in () if self.is_extension else _SECTIONS:
            if name not in sections:
                raise PolicyError(f"{self.source}: the section `{name}` is missing")
        return sections

    def read_lists(self, node: yaml.Node) -> None:
        for name, listed in self.pairs(node, "words"):
            if self.is_extension and name not in self.lists:
                raise self.refuse(listed, f"`{name}` is not a list of words; an extension adds to those that there are")
            self.lists[name] = self.lists.get(name, frozenset()) | self.words(listed, name)

    def read_groups(self, node: yaml.Node) -> None:
        for name, group in self.pairs(node, "phrases"):
            self.read_group(name, group)

    def vocabulary(self, text: str) -> Vocabulary:
        """Return the vocabulary; `text` is everything that was read, for its version."""
        version = hashlib.sha256(text.encode()).hexdigest()[:12]
        used = (wanted for phrase in self.phrases for wanted in phrase.left if wanted is not None)
        known = frozenset().union(*used, *self.lists.values())
        tree, unspaced = _node(tuple(self.phrases), {}), tuple(self.unspaced)
        return Vocabulary(self.lists, self.bases, self.because, tree, unspaced, known, version)

    def pairs(self, node: yaml.Node | None, name: str) -> Iterator[tuple[str, yaml.Node]]:
        if not isinstance(node, yaml.MappingNode):
            raise self.refuse(node, f"{name} must be a mapping")
        seen: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self.refuse(key, f"every name in {name} must be text")
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
            forms = _spellings(item.value)
            if forms is None:
                raise self.refuse(item, f"{name}: `{item.value}` must be one word")
            if item.value.endswith("~"):
                self.bases.update(dict.fromkeys(forms, item.value.removesuffix("~")))
            found |= forms
        return frozenset(found)

    def read_group(self, name: str, node: yaml.Node) -> None:
        fields = dict(self.pairs(node, name))
        for other in fields.keys() - {"because", "match"}:
            raise self.refuse(fields[other], f"{name}: `{other}` is not a field; there are because and match")
        if "match" not in fields:
            raise self.refuse(node, f"{name}: the list `match` is missing")
        self._read_meaning(name, node, fields.get("because"))
        for item in self.scalars(fields["match"], name):
            if UNSPACED.search(item.value):
                self.unspaced += [(fold_word(text), name) for text in item.value.split("|")]
                continue
            for variant in self._variants(item, name):
                if variant[0] is None or variant[-1] is None:
                    raise self.refuse(item, f"{name}: `{item.value}` must begin and end with a word")
                self.phrases.append(_Phrase(len(self.phrases), name, variant))

    def _read_meaning(self, name: str, node: yaml.Node, because: yaml.Node | None) -> None:
        if not self.is_extension:
            self.because[name] = str(because.value) if because is not None else ""
        elif name not in self.because:
            raise self.refuse(node, f"`{name}` is not a group of phrases; an extension adds to those that there are")
        elif because is not None:
            raise self.refuse(because, f"{name}: an extension adds phrases; it cannot change `because`")

    def _variants(self, item: yaml.ScalarNode, name: str) -> list[tuple[frozenset[str] | None, ...]]:
        """Return the variants with and without optional words."""
        choices: list[list[frozenset[str] | str | None]] = []
        for part in item.value.split():
            if part == _GAP:
                choices.append([None])
                continue
            optional = part.endswith("?")
            found: set[str] = set()
            for word in part.removesuffix("?").split("|"):
                forms = self.lists.get(word[1:]) if word.startswith("@") else _spellings(word)
                if forms is None and word.startswith("@"):
                    raise self.refuse(item, f"`{word}` is not a list under words")
                if forms is None:
                    raise self.refuse(item, f"{name}: `{part}` in `{item.value}` is not a word")
                found |= forms
            choices.append([frozenset(found), "skip"] if optional else [frozenset(found)])
        variants = list(product(*choices))
        if len(variants) > _MAX_VARIANTS:
            raise self.refuse(item, f"{name}: `{item.value}` has too many optional words")
        return [tuple(part for part in variant if not isinstance(part, str)) for variant in variants]


def _spellings(written: str) -> set[str] | None:
    """Return how a word of the file may stand in a text; None if it is no word."""
    base = written.removesuffix("~")
    if not _WORD.fullmatch(base):
        return None
    word = fold_word(base)
    found = _verb_forms(word) if written.endswith("~") else {word}
    return found | {form.replace("'", "") for form in found if "n't" in form or "'s" in form}


_DOUBLING = re.compile(r"(?:[^aeiou]|qu)[aeiou][bdgmnprt]")


def _verb_forms(verb: str) -> set[str]:
    """Return the regular forms of an English verb; the data lists irregular ones."""
    if verb.endswith("e"):
        return {verb, verb + "s", verb + "d", (verb[:-2] + "y" if verb.endswith("ie") else verb[:-1]) + "ing"}
    if verb.endswith("y") and verb[-2:-1] not in "aeiou":
        return {verb, verb[:-1] + "ies", verb[:-1] + "ied", verb + "ing"}
    plural = verb + ("es" if verb.endswith(("s", "x", "z", "ch", "sh", "o")) else "s")
    forms = {verb, plural, verb + "ed", verb + "ing"}
    if _DOUBLING.fullmatch(verb[-3:]) or _DOUBLING.fullmatch(verb[-4:]):
        forms |= {verb + verb[-1] + "ed", verb + verb[-1] + "ing"}
    return forms


SHARED_FILE = "all.yaml"
"""Extension for every project, in a directory of extensions."""


@dataclass(frozen=True)
class Vocabularies:
    """Vocabularies by project."""

    shared: Vocabulary
    by_project: Mapping[str, Vocabulary]
    """Of projects with their own extension, on top of the shared one."""

    def of(self, project: str) -> Vocabulary:
        """Return the vocabulary of a project (a tenant)."""
        return self.by_project.get(project, self.shared)


@cache
def shipped_vocabularies() -> Vocabularies:
    """Return the shipped vocabulary for every project."""
    return Vocabularies(shipped_vocabulary(), MappingProxyType({}))


def load_vocabularies(path: Path | None) -> Vocabularies:
    """Return the shipped vocabulary with an installation's extensions.

    Args:
        path: a YAML file for every project, or a directory with `all.yaml` for every project and `PROJECT.yaml` for
            one; None for no extension.

    Raises:
        PolicyError: the operator's fault; names file, line and rule.
    """
    if path is None:
        return shipped_vocabularies()
    if not path.is_dir():
        return Vocabularies(_extend(_read_words(path)), MappingProxyType({}))
    files = sorted(file for file in path.iterdir() if file.suffix in (".yaml", ".yml"))
    if not files:
        raise PolicyError(f"{path}: holds no YAML file of words")
    common = [_read_words(file) for file in files if file.name == SHARED_FILE]
    own = {file.stem: _extend(*common, _read_words(file)) for file in files if file.name != SHARED_FILE}
    return Vocabularies(_extend(*common), MappingProxyType(own))
