"""The policy scan: the same gates on the same bytes for every tier and every caller (H-081, H-113).

Work is bounded by counts, not by a clock, so equal input gives an equal report on every machine. Exceeding a count is a
finding: what could not be checked does not pass.

Served files are checked in full. The sources of a built site, which nobody is served, are checked only for secrets and
for what a package manager or another tool would obey.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping

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
    scanner = _Scanner(served_part(files, public or ""), profile, known_keys, directory=public or "")
    try:
        for path in sorted(files):
            if public and not is_below(path, public):
                scanner.scan_source(path, files[path])
        scanner.scan_served()
    except TooManyFindingsError:
        scanner.notes.give_up()
    if public is None:
        scanner.notes.find("not-built", PACKAGE, 0)
    scanner.check_totals()
    js_bytes, js_gzip_bytes = scanner.check_js_budget()
    return ScanReport(
        digest=_digest(files, public or ""),
        profile=profile_name,
        findings=scanner.notes.sorted_findings(),
        csp=build_csp(profile, scanner.notes),
        js_bytes=js_bytes,
        js_gzip_bytes=js_gzip_bytes,
    )


def _digest(files: Mapping[str, bytes], public: str) -> str:
    entries = {
        path: Entry(hashlib.sha256(data).hexdigest(), len(data), media_type_of(path)) for path, data in files.items()
    }
    return Manifest(entries, public=public).digest


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

    def scan_source(self, path: str, data: bytes) -> None:
        """Check a file that is never served."""
        check_source(path, data, self._references)
        find_secrets(path, data, notes=self.notes, budget=self._secrets, known_keys=self._known_keys)

    def scan_served(self) -> None:
        """Check all served files."""
        with self.notes.below(self._directory):
            for path in sorted(self._files):
                self._scan_file(path, self._files[path])

    def _scan_file(self, path: str, data: bytes) -> None:
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
