"""Verdicts on files that are clean by themselves, so that an edit's scan costs what changed (issue 19).

A verdict holds for the same bytes at the same path, under the same rules, profile and known keys, while the files that
it refers to stay as they were. Verdicts outlive a process beside the content store, each under a MAC whose key is made
of the installation's keys: whoever can write there and does not hold those is not believed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import sys
from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from idna.package_data import __version__ as idna_version
from lxml import etree

from routing.policy.platform import Profile
from sites import files
from sites.scan.rules import Notes

_MOST_REMEMBERED: Final = 4_096
"""Verdicts in the memory of one process."""
_MOST_SCRIPT_BYTES: Final = 65_536
"""Of a file that is remembered."""
_MAC_BYTES: Final = 32


@dataclass(frozen=True)
class Verdict:
    """What a clean file adds to its release."""

    notes: Notes
    spent: tuple[int, ...]
    """Of each budget of a scan."""
    seen: Mapping[str, str | None]
    """The files that it refers to, by digest."""

    def to_json(self) -> bytes:
        """Return the text that `from_json` reads."""
        notes = self.notes
        flags = [notes.has_style_attributes, notes.has_data_images, notes.has_data_fonts]
        scripts = [b64encode(source).decode() for source in notes.scripts.values()]
        hashes = [sorted(notes.script_hashes), sorted(notes.style_hashes), sorted(notes.frames)]
        return json.dumps([scripts, *hashes, flags, self.spent, self.seen]).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Verdict:
        """Read what `to_json` has written."""
        scripts, script_hashes, style_hashes, frames, flags, spent, seen = json.loads(text)
        notes = Notes(set(), {}, set(script_hashes), set(style_hashes), set(frames), *flags)
        for source in scripts:
            notes.add_script(b64decode(source))
        return cls(notes, tuple(spent), seen)


class Verdicts:
    """The verdicts of one scan's rules, profile and known keys."""

    def __init__(self, root: Path | None, profile: Profile, known_keys: tuple[str, ...]) -> None:
        """Look below `root`, and only in this process's memory without it or without keys."""
        self._keys = hashlib.sha256("\0".join(known_keys).encode()).digest()
        self._root = root if known_keys else None
        self._context = hashlib.sha256(_rules() + self._keys + profile.model_dump_json().encode()).digest()

    def name_of(self, part: str, path: str, digest: str) -> str:
        """Return the name of the verdict on a file: of a part of the release, at a path, with a digest."""
        return hashlib.sha256(self._context + f"{part}\0{path}\0{digest}".encode()).hexdigest()

    def get(self, name: str) -> Verdict | None:
        """Return a verdict; None if there is none, or it cannot be trusted."""
        verdict = _remembered.get(name)
        if verdict is None and self._root is not None:
            with suppress(OSError):
                stored = self._path(self._root, name).read_bytes()
                if hmac.compare_digest(stored[:_MAC_BYTES], self._mac(name, stored[_MAC_BYTES:])):
                    verdict = _remember(name, Verdict.from_json(stored[_MAC_BYTES:]))
        return verdict

    def put(self, name: str, verdict: Verdict) -> None:
        """Keep a verdict; a disk that does not take it costs another scan and nothing else."""
        if sum(map(len, verdict.notes.scripts.values())) > _MOST_SCRIPT_BYTES:
            return
        _remember(name, verdict)
        if self._root is not None:
            text, path = verdict.to_json(), self._path(self._root, name)
            draft = path.with_name(f".{name}.{secrets.token_hex(8)}")
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    draft.write_bytes(self._mac(name, text) + text)
                    os.replace(draft, path)
                finally:
                    draft.unlink(missing_ok=True)

    def _mac(self, name: str, text: bytes) -> bytes:
        return hmac.digest(self._keys, name.encode() + text, "sha256")

    @staticmethod
    def _path(root: Path, name: str) -> Path:
        return root / name[:2] / name


_remembered: dict[str, Verdict] = {}


def _remember(name: str, verdict: Verdict) -> Verdict:
    if len(_remembered) >= _MOST_REMEMBERED:
        _remembered.clear()
    _remembered[name] = verdict
    return verdict


@cache
def _rules() -> bytes:
    """Return the digest of the code that decides what is clean."""
    code = [Path(files.__file__), *sorted(path for path in Path(__file__).parent.iterdir() if path.is_file())]
    versions = f"{sys.version} {idna_version} {etree.LIBXML_VERSION}".encode()
    return hashlib.sha256(versions + b"".join(hashlib.sha256(path.read_bytes()).digest() for path in code)).digest()
