"""The policy scan: the same gates on the same bytes for every tier and every caller (H-081, H-113).

Work is bounded by counts, not by a clock, so equal input gives an equal report on every machine. Exceeding a count is a
finding: what could not be checked does not pass.

A file that was clean by itself is not read again while it and the files that it refers to stay as they were: this
process remembers it by digest. The rules over the whole release are always applied to all of it.

Served files are checked in full. The sources of a built site, which nobody is served, are checked only for secrets and
for what a package manager or another tool would obey.
"""

from __future__ import annotations

import gzip
import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

from routing.policy.platform import Profile
from sites.content_store import Entry, Manifest
from sites.files import PACKAGE, is_below, is_text, media_type_of, public_of, served_part
from sites.scan.elements import check_element, check_svg, check_xml
from sites.scan.file_types import check_kind, check_source
from sites.scan.html_tokenizer import MarkupBudget, Page
from sites.scan.references import Place, References
from sites.scan.rules import MAX_INLINE, Notes, ScanReport, TooManyFindingsError, build_csp
from sites.scan.secrets import SecretBudget, find_secrets

MAX_CSS_CHARS = 2 * 1024 * 1024
_WORTH_COMPRESSING_BYTES = 2 * 1024 * 1024


def scan(
    files: Mapping[str, bytes], profile: Profile, *, profile_name: str, known_keys: tuple[str, ...] = ()
) -> ScanReport:
    """Scan a release; the report passes if it has no findings.

    Args:
        files: contents by path, as `ContentStore.read_tree` returns them.
        profile: the site's publish profile.
        profile_name: its name, for the report.
        known_keys: keys of this installation, which must not appear in any form.
    """
    public = public_of(files)
    release = _Release(files, public or "", profile, known_keys)
    scanner = _scan_by_file(release) or _scan_in_order(release)
    if public is None:
        scanner.notes.find("not-built", PACKAGE, 0)
    scanner.check_totals()
    js_bytes, js_gzip_bytes = scanner.check_js_budget()
    return ScanReport(
        digest=Manifest(release.entries, public=release.public).digest,
        profile=profile_name,
        findings=scanner.notes.sorted_findings(),
        csp=build_csp(profile, scanner.notes),
        js_bytes=js_bytes,
        js_gzip_bytes=js_gzip_bytes,
    )


class _Release:
    """What is scanned, by what rules."""

    def __init__(self, files: Mapping[str, bytes], public: str, profile: Profile, known_keys: tuple[str, ...]) -> None:
        self.profile, self.known_keys, self.public = profile, known_keys, public
        self.served = served_part(files, public)
        self.sources = {path: data for path, data in files.items() if public and not is_below(path, public)}
        self.entries = {
            path: Entry(hashlib.sha256(data).hexdigest(), len(data), media_type_of(path))
            for path, data in files.items()
        }

    def digest_of(self, served: str) -> str | None:
        """Return the digest of a file by the path that visitors request; None when there is none."""
        entry = self.entries.get(f"{self.public}/{served}" if self.public else served)
        return entry.sha256 if entry is not None else None

    def scanner(self, files: Mapping[str, bytes]) -> _Scanner:
        """Return a scanner that has seen nothing yet."""
        return _Scanner(files, self.profile, self.known_keys, directory=self.public)


def _scan_in_order(release: _Release) -> _Scanner:
    """Scan every file with one budget for all."""
    scanner = release.scanner(release.served)
    try:
        for path, data in sorted(release.sources.items()):
            scanner.scan_source(path, data)
        scanner.scan_served()
    except TooManyFindingsError:
        scanner.notes.give_up()
    return scanner


def _scan_by_file(release: _Release) -> _Scanner | None:
    """Scan each file by itself, or not at all if it is known; None unless all are clean and within one budget.

    Alone, a file is checked for at least what it is checked for after others, which may have had the same script.
    """
    whole = release.scanner(release.served)
    for part, files in (("source", release.sources), ("served", release.served)):
        for path, data in sorted(files.items()):
            digest = release.digest_of(path) if part == "served" else release.entries[path].sha256
            key = _Key(part, path, digest or "", release.profile, release.known_keys)
            facts = _facts_of(release, key, data)
            if facts is None or not whole.take(facts):
                return None
    return whole


class _Key(NamedTuple):
    """All that the scan of a file by itself depends on, but for files that it refers to."""

    part: str
    path: str
    digest: str
    profile: Profile
    known_keys: tuple[str, ...]


@dataclass(frozen=True)
class _Facts:
    """What a clean file adds to its release."""

    notes: Notes
    spent: tuple[int, ...]
    """Of each budget of a scan."""
    seen: Mapping[str, str | None]
    """The files that it refers to, by digest."""


def _facts_of(release: _Release, key: _Key, data: bytes) -> _Facts | None:
    """Return a file's facts, from memory if they still hold; None unless it is clean."""
    known = _known.get(key)
    if known is not None and all(release.digest_of(name) == digest for name, digest in known.seen.items()):
        return known
    seen = _Seen(release.served)
    scanner = release.scanner(seen)
    full = scanner.budgets
    try:
        scanner.scan_source(key.path, data) if key.part == "source" else scanner.scan_file(key.path, data)
    except TooManyFindingsError:
        return None
    if scanner.notes.findings:
        return None
    spent = tuple(had - left for had, left in zip(full, scanner.budgets, strict=True))
    facts = _Facts(scanner.notes, spent, {name: release.digest_of(name) for name in seen.names})
    _known.put(key, facts)
    return facts


class _Seen(Mapping[str, bytes]):
    """The served files, and which of them were asked for."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> bytes:
        self.names.add(name)
        return self._files[name]

    def __iter__(self) -> Iterator[str]:
        raise TypeError("a file by itself does not list the others")

    def __len__(self) -> int:
        return len(self._files)


_MOST_KNOWN = 2_048
_MOST_SCRIPT_BYTES = 65_536
"""Of a file that is remembered."""


class _Known:
    """Facts of the files scanned last, in this process alone: nothing that a tenant could write is believed."""

    def __init__(self) -> None:
        self._facts: OrderedDict[_Key, _Facts] = OrderedDict()
        self._lock = Lock()

    def get(self, key: _Key) -> _Facts | None:
        with self._lock:
            if (facts := self._facts.get(key)) is not None:
                self._facts.move_to_end(key)
            return facts

    def put(self, key: _Key, facts: _Facts) -> None:
        if sum(map(len, facts.notes.scripts.values())) > _MOST_SCRIPT_BYTES:
            return
        with self._lock:
            self._facts[key] = facts
            if len(self._facts) > _MOST_KNOWN:
                self._facts.popitem(last=False)


_known = _Known()


class _Scanner:
    def __init__(
        self, files: Mapping[str, bytes], profile: Profile, known_keys: tuple[str, ...], *, directory: str
    ) -> None:
        """Take the served files by the paths that visitors request, and their directory in the release."""
        self.notes = Notes()
        self._directory = directory
        self._files = files
        self._profile = profile
        self._known_keys = known_keys
        self._references = References(files, profile, self.notes, check_svg=self._check_svg)
        self._secrets = SecretBudget()
        self._markup = MarkupBudget()
        self._css_left = MAX_CSS_CHARS
        self._spent = (0,) * len(self.budgets)

    def scan_source(self, path: str, data: bytes) -> None:
        """Check a file that is never served."""
        check_source(path, data, self._references)
        find_secrets(path, data, notes=self.notes, budget=self._secrets, known_keys=self._known_keys)

    def scan_served(self) -> None:
        """Check all served files."""
        with self.notes.below(self._directory):
            for path in sorted(self._files):
                self.scan_file(path, self._files[path])

    def scan_file(self, path: str, data: bytes) -> None:
        """Check one served file."""
        kind = check_kind(path, data, self._references)
        find_secrets(path, data, notes=self.notes, budget=self._secrets, known_keys=self._known_keys)
        if kind == "image/svg+xml":
            self._check_svg(data, Place(path, 1))
        elif kind == "application/xml":
            check_xml(data, Place(path, 1), self._references)
        elif is_text(kind):
            text = self._decode(path, data)
            if kind == "text/html":
                self._scan_page(path, text)
            elif kind == "text/css":
                self._scan_css(path, text)
            elif kind == "text/javascript":
                self._references.check_js(text, Place(path, 1))

    @property
    def budgets(self) -> tuple[int, ...]:
        """What may still be read, of each kind."""
        secrets, markup, references = self._secrets, self._markup, self._references
        layers = (secrets.layers.escapes, secrets.layers.runs, secrets.layers.inflated_bytes)
        tags = (markup.tags, markup.attributes, markup.marks)
        return (
            *layers,
            secrets.tries,
            secrets.candidates,
            *tags,
            references.js_left,
            references.css_left,
            self._css_left,
        )

    def take(self, facts: _Facts) -> bool:
        """Add a clean file; return whether the budgets for all files have room for it."""
        self.notes.add(facts.notes)
        self._spent = tuple(map(sum, zip(self._spent, facts.spent, strict=True)))
        return all(spent < room for spent, room in zip(self._spent, self.budgets, strict=True))

    def check_totals(self) -> None:
        """Check the limits of the whole release."""
        if len(self._files) > self._profile.max_files:
            self.notes.find("too-many-files", "", 0, detail=f"{len(self._files)} of {self._profile.max_files}")
        inline = len(self.notes.script_hashes) + len(self.notes.style_hashes)
        if inline > MAX_INLINE:
            self.notes.find("too-many-inline", "", 0, detail=f"{inline} of {MAX_INLINE}")

    def check_js_budget(self) -> tuple[int, int]:
        """Check all JavaScript against the profile; return its bytes, raw and compressed."""
        raw = sum(map(len, self.notes.scripts.values()))
        if raw > self._profile.js_bytes:
            self.notes.find("js-raw-bytes", "", 0, detail=f"{raw} of {self._profile.js_bytes} bytes")
        if raw > _WORTH_COMPRESSING_BYTES + self._profile.js_bytes:
            return raw, 0
        compressed = sum(len(gzip.compress(source, 6, mtime=0)) for source in self.notes.scripts.values())
        if compressed > self._profile.js_gzip_bytes:
            self.notes.find("js-gzip-bytes", "", 0, detail=f"{compressed} of {self._profile.js_gzip_bytes} bytes")
        return raw, compressed

    def _decode(self, path: str, data: bytes) -> str:
        text = data.decode("utf-8-sig", errors="replace")
        if "\0" in text or "\ufffd" in text:
            self.notes.find("not-utf8", path, 0)
        return text.replace("\r\n", "\n").replace("\r", "\n")

    def _scan_page(self, path: str, text: str, *, first_line: int = 1, has_scripts: bool = True) -> None:
        page = Page(text, self._markup, first_line=first_line, has_scripts=has_scripts)
        for tag in page.tags():
            check_element(tag, Place(path, tag.line), self._references)
            if tag.name == "noscript" and tag.text:  # a browser without scripts shows it
                self._scan_page(path, tag.text, first_line=tag.text_line, has_scripts=False)
        if page.too_complex:
            self.notes.find("html-too-complex", path, 0)
        for line, what in page.ambiguous:
            self.notes.find("html-ambiguous", path, line, detail=what)

    def _scan_css(self, path: str, text: str) -> None:
        self._css_left -= len(text)
        if self._css_left < 0:
            self.notes.find("html-too-complex", path, 0, detail="style sheets")
        else:
            self._references.check_css(text, Place(path, 1))

    def _check_svg(self, data: bytes, place: Place) -> None:
        check_svg(data, place, self._references)
