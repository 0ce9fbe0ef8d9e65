"""The policy scan: the same gates on the same bytes for every tier and every caller (H-081, H-113).

Work is bounded by counts, not by a clock, so equal input gives an equal report on every machine. Exceeding a count is a
finding: what could not be checked does not pass.

A file that was clean by itself is not read again while it and the files that it refers to stay as they were (see
`verdicts`). The rules over the whole release are always applied to all of it.

Served files are checked in full. The sources of a built site, which nobody is served, are checked only for secrets and
for what a package manager or another tool would obey.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import astuple
from pathlib import Path

from routing.policy.platform import Profile
from sites.content_store import Entry, Manifest
from sites.files import PACKAGE, is_below, is_text, media_type_of, public_of, served_part
from sites.scan.elements import check_element, check_svg, check_xml
from sites.scan.file_types import check_kind, check_source
from sites.scan.frames import MAX_SOURCES_BYTES, Link, frame_source, link_of
from sites.scan.html_tokenizer import MarkupBudget, Page, Tag
from sites.scan.references import Place, References
from sites.scan.rules import MAX_INLINE, Notes, ScanReport, TooManyFindingsError, build_csp
from sites.scan.secrets import SecretBudget, find_secrets
from sites.scan.verdicts import Verdict, Verdicts

MAX_CSS_CHARS = 2 * 1024 * 1024
_WORTH_COMPRESSING_BYTES = 2 * 1024 * 1024


def scan(
    files: Mapping[str, bytes],
    profile: Profile,
    *,
    profile_name: str,
    known_keys: tuple[str, ...] = (),
    new_keys: tuple[str, ...] = (),
    base: Mapping[str, Entry] | None = None,
    verdicts_in: Path | None = None,
) -> ScanReport:
    """Scan a release; the report passes if it has no findings.

    No file may hold a key of `known_keys`, or of `new_keys`, which are younger than the files in `base`. Verdicts on
    clean files are kept in the directory `verdicts_in`; without one in this process alone.
    """
    public = public_of(files)
    verdicts = Verdicts(verdicts_in, profile, known_keys)
    all_keys, older = (*known_keys, *new_keys), (base or {}) if new_keys else None
    release = _Release(files, public or "", profile, all_keys, verdicts, older)
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

    def __init__(
        self,
        files: Mapping[str, bytes],
        public: str,
        profile: Profile,
        known_keys: tuple[str, ...],
        verdicts: Verdicts,
        base: Mapping[str, Entry] | None,
    ) -> None:
        """Take the rules; of files that are not in `base`, if there is one, no verdict is known."""
        self.profile, self.known_keys, self.public = profile, known_keys, public
        self.verdicts, self.base = verdicts, base
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
            verdict = _verdict_on(release, part, path, data)
            if verdict is None or not whole.take(verdict):
                return None
    return whole


def _verdict_on(release: _Release, part: str, path: str, data: bytes) -> Verdict | None:
    """Return the verdict on a file, a known one if it still holds; None unless the file is clean."""
    whole_path = f"{release.public}/{path}" if part == "served" and release.public else path
    entry, verdicts = release.entries[whole_path], release.verdicts
    name = verdicts.name_of(part, path, entry.sha256)
    known = verdicts.get(name) if release.base is None or release.base.get(whole_path) == entry else None
    if known is not None and all(release.digest_of(other) == digest for other, digest in known.seen.items()):
        return known
    seen = _Seen(release.served)
    scanner = release.scanner(seen)
    full = scanner.budgets
    try:
        scanner.scan_source(path, data) if part == "source" else scanner.scan_file(path, data)
    except TooManyFindingsError:
        return None
    if scanner.notes.findings:
        return None
    spent = tuple(had - left for had, left in zip(full, scanner.budgets, strict=True))
    verdict = Verdict(scanner.notes, spent, {other: release.digest_of(other) for other in seen.names})
    verdicts.put(name, verdict)
    return verdict


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
        with self.notes.below(self._directory):
            for path in sorted(self._files):
                self.scan_file(path, self._files[path])

    def scan_file(self, path: str, data: bytes) -> None:
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
        left = (self._references.js_left, self._references.css_left, self._css_left)
        return (*astuple(self._secrets), *astuple(self._markup), *left)

    def take(self, verdict: Verdict) -> bool:
        """Add a clean file; return whether the budgets for all files have room for it."""
        self.notes.add(verdict.notes)
        self._spent = tuple(map(sum, zip(self._spent, verdict.spent, strict=True)))
        return all(spent < room for spent, room in zip(self._spent, self.budgets, strict=True))

    def check_totals(self) -> None:
        """Check the limits of the whole release."""
        if len(self._files) > self._profile.max_files:
            self.notes.find("too-many-files", "", 0, detail=f"{len(self._files)} of {self._profile.max_files}")
        inline = len(self.notes.script_hashes) + len(self.notes.style_hashes)
        if inline > MAX_INLINE:
            self.notes.find("too-many-inline", "", 0, detail=f"{inline} of {MAX_INLINE}")
        if (frames := sum(map(len, self.notes.frames))) > MAX_SOURCES_BYTES:
            self.notes.find("too-many-frames", "", 0, detail=f"{frames} of {MAX_SOURCES_BYTES} bytes")

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

    def _scan_page(
        self, path: str, text: str, *, first_line: int = 1, has_scripts: bool = True, inside: bool = False
    ) -> None:
        """Scan a page, or a part of one that `inside` a frame is a page of its own."""
        page = Page(text, self._markup, first_line=first_line, has_scripts=has_scripts)
        links: list[Link] = []
        names: set[str] = set()
        for tag in page.tags():
            check_element(tag, Place(path, tag.line), self._references)
            if link := link_of(tag, inside=inside):
                links.append(link)
            if tag.name == "iframe":
                names.add(tag.get("name") or "")
                self._scan_frame(path, tag, inside=inside)
            if tag.name == "noscript" and tag.text:  # a browser without scripts shows it
                self._scan_page(path, tag.text, first_line=tag.text_line, has_scripts=False, inside=inside)
        for link in links:
            if inside or link.target in names:
                self._check_frame_link(path, link)
        if page.too_complex:
            self.notes.find("html-too-complex", path, 0)
        for line, what in page.ambiguous:
            self.notes.find("html-ambiguous", path, line, detail=what)

    def _scan_frame(self, path: str, tag: Tag, *, inside: bool) -> None:
        part = tag.get("srcdoc")
        if inside:
            self.notes.find("frame-loose", path, tag.line, detail="a frame in a frame")
        elif part is not None:
            self._scan_page(path, part, first_line=tag.line, inside=True)

    def _check_frame_link(self, path: str, link: Link) -> None:
        source = frame_source(link.href, self._profile)
        if source is not None:
            self.notes.frames.add(source)
        elif not link.href.startswith("#"):
            self.notes.find("frame-host", path, link.line, detail=link.href)

    def _scan_css(self, path: str, text: str) -> None:
        self._css_left -= len(text)
        if self._css_left < 0:
            self.notes.find("html-too-complex", path, 0, detail="style sheets")
        else:
            self._references.check_css(text, Place(path, 1))

    def _check_svg(self, data: bytes, place: Place) -> None:
        check_svg(data, place, self._references)
