"""Whose words decide: an installation's own for every project, and those of one project over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from routing.errors import PolicyError
from routing.vocabulary import Vocabulary, extend_vocabulary, read_words, shipped_vocabulary

SHARED_FILE = "all.yaml"
"""In a directory of words: those that hold for every project."""


@dataclass(frozen=True)
class Vocabularies:
    """The words to look for, by project."""

    shared: Vocabulary
    by_project: Mapping[str, Vocabulary]
    """Of projects that have words of their own; these go over the shared ones."""

    def of(self, project: str) -> Vocabulary:
        """Return the words of a project (a tenant)."""
        return self.by_project.get(project, self.shared)


@cache
def shipped_vocabularies() -> Vocabularies:
    """Return the words that ship with the product, for every project."""
    return Vocabularies(shipped_vocabulary(), MappingProxyType({}))


def load_vocabularies(path: Path | None) -> Vocabularies:
    """Return the shipped words, extended by an installation's own.

    Args:
        path: a YAML file of words for every project, or a directory with `all.yaml` for every project and
            `PROJECT.yaml` for one; None for the shipped words alone.

    Raises:
        PolicyError: the operator's fault; names file, line and rule.
    """
    if path is None:
        return shipped_vocabularies()
    if not path.is_dir():
        return Vocabularies(extend_vocabulary(read_words(path)), MappingProxyType({}))
    files = sorted(file for file in path.iterdir() if file.suffix in (".yaml", ".yml"))
    if not files:
        raise PolicyError(f"{path}: holds no YAML file of words")
    common = [read_words(file) for file in files if file.name == SHARED_FILE]
    own = {file.stem: extend_vocabulary(*common, read_words(file)) for file in files if file.name != SHARED_FILE}
    return Vocabularies(extend_vocabulary(*common), MappingProxyType(own))
