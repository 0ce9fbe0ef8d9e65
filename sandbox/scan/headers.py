"""The Content-Security-Policy of a release, made from what its scan found and its profile allows.

It starts from nothing and never holds `unsafe-inline`, `unsafe-eval`, a wildcard or `data:` for scripts. Style
attributes alone are allowed as a whole when a release has some: their text was judged, and they can run nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from routing.policy import Profile
from sandbox.scan.notes import Notes

MAX_INLINE = 64
"""Inline scripts and styles together, so that the header stays below the 8 KiB that servers accept."""


def build_csp(profile: Profile, notes: Notes) -> str:
    """Return the header's value."""
    script = ["'self'", *sorted(notes.script_hashes), *_hosts(profile.script_hosts)]
    image = ["'self'", *(["data:"] if notes.has_data_images else []), *_hosts(profile.image_hosts)]
    directives = {
        "default-src": ["'none'"],
        "script-src": script,
        "style-src": ["'self'", *sorted(notes.style_hashes)],
        "style-src-attr": ["'unsafe-inline'" if notes.has_style_attributes else "'none'"],
        "img-src": image,
        "font-src": ["'self'", *(["data:"] if notes.has_data_fonts else [])],
        "media-src": ["'self'"],
        "connect-src": ["'self'"],
        "manifest-src": ["'self'"],
        "form-action": ["'self'", "mailto:", *_hosts(profile.form_hosts)],
        "base-uri": ["'none'"],
        "object-src": ["'none'"],
        "frame-src": ["'none'"],
        "frame-ancestors": ["'none'"],
        "worker-src": ["'none'"],
    }
    return "; ".join(f"{name} {' '.join(sources)}" for name, sources in directives.items())


def _hosts(hosts: Iterable[str]) -> list[str]:
    return [f"https://{host}" for host in sorted(hosts)]
