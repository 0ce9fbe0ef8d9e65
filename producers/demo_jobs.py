"""What the demo submits, and how each of its jobs should end."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

SITES = ("harbour", "garden", "studio", "workshop", "cellar", "kiosk")
"""The shipped site under several names: jobs on different sites run side by side."""
HEAVY_SITE = "gallery"
"""A site whose picture alone is above tier 1's output limit."""
AGENT_SITE = "leaflet"
"""One plain page, which a code agent turns into several."""


@dataclass
class Case:
    """One job of the demo, and how it should end."""

    name: str
    door: str
    body: Mapping[str, object]
    expected: str
    """The state it should come to: an end, or `awaiting_approval`."""
    cancel_after_seconds: float | None = None
    """Cancelled when it has been seen to run for this long."""
    ran_at: float | None = None
    job_id: UUID | None = None
    view: dict[str, object] = field(default_factory=dict)
    problem: str = ""
    preview: str = "-"
    """The size of the page behind its preview link."""

    @property
    def state(self) -> str:
        """Where it is."""
        return str(self.view.get("state", "not submitted"))


def cases(*, has_boxes: bool) -> list[Case]:
    """Return the demo's jobs; a code agent's comes first, as it takes longest, and only where there are boxes."""
    convert = {"prompt": "Convert to a multi-page site with shared nav", "site": AGENT_SITE}
    agents = [Case("code agent", "http", convert, "awaiting_approval")] if has_boxes else []
    return [
        *agents,
        Case("question", "http", {"prompt": "What is a sourdough starter?"}, "answered"),
        Case("trivial", "cli", {"prompt": "date -u"}, "answered"),
        Case("direct 1", "http", {"prompt": "Change the hero heading to 'Bread since 1932'", "site": "harbour"},
             "awaiting_approval"),
        Case("direct 2", "celery", {"prompt": "Make the primary colour #1d4ed8", "site": "garden"},
             "awaiting_approval"),
        Case("direct 3", "cli", {"prompt": "Change the phone number to +32 9 123 45 67", "site": "studio"},
             "awaiting_approval"),
        Case("model", "http", {"prompt": "Add a short FAQ about opening hours and how to order ahead",
             "site": "workshop"}, "awaiting_approval"),
        Case("debated", "http", {"prompt": "Remove the testimonials section", "site": "cellar"}, "awaiting_approval"),
        Case("patch", "cli", {"prompt": "Add a hover effect to the cards", "site": "kiosk"}, "awaiting_approval"),
        Case("new site", "celery", {"prompt": "Create a site for Ada's Bikes, a repair shop in Ghent that fixes city "
             "bikes in a day and sells restored ones", "new_site": "adas-bikes"}, "awaiting_approval"),
        Case("output limit", "http", {"prompt": "Change the page title to 'Gallery'", "site": HEAVY_SITE},
             "output_exceeded"),
        Case(
            "cost cap", "http",
            {"prompt": "What do our pages say about prices and classes?", "site": "harbour", "budget_usd": 0.008},
            "budget_exceeded",
        ),
        Case("cancelled", "http", {"prompt": "Explain how bread rises, at length [rehearse:slow]"}, "cancelled",
             cancel_after_seconds=1.5),
        Case("bad request", "http", {"prompt": "x" * 33 * 1024, "site": "harbour"}, "refused"),
        Case("bad request", "celery", {"prompt": "Change the heading to 'Hi'", "site": "no-such-site"}, "rejected"),
    ]  # fmt: skip


_HEAVY_SPEC = {
    "root": "page",
    "elements": {
        "page": {"type": "Page", "props": {"title": "Photos"}, "children": ["hero"]},
        "hero": {"type": "Hero", "props": {"heading": "One large photo"}, "children": []},
    },
}


_LEAFLET = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Quay Cafe</title><link rel="stylesheet" href="site.css"></head>
<body>
<main>
  <h1>Quay Cafe</h1>
  <p>Coffee by the water since 1994.</p>
  <section id="menu"><h2>Menu</h2><p>Coffee, tea, and three kinds of cake each day.</p></section>
  <section id="visit"><h2>Visit us</h2><p>Harbour Street 4, from eight to six, closed on Mondays.</p></section>
</main>
</body>
</html>
"""


def agent_files() -> Mapping[str, bytes]:
    """Return the files of the site that a code agent works on."""
    return {"index.html": _LEAFLET.encode(), "site.css": b"body { font-family: system-ui; margin: 2rem; }\n"}


def heavy_files() -> Mapping[str, bytes]:
    """Return the files of the heavy site."""
    return {"site.json": json.dumps(_HEAVY_SPEC).encode(), "photo.png": _noise_png(900, 900)}


def _noise_png(width: int, height: int) -> bytes:
    """Return a valid PNG that does not compress: pseudo-random pixels from a fixed seed."""
    state, rows = 1, bytearray()
    for _ in range(height):
        rows.append(0)
        for _ in range(width * 3 // 4):
            state = (state * 1_103_515_245 + 12_345) & 0xFFFFFFFF
            rows += state.to_bytes(4, "big")
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes((8, 2, 0, 0, 0))
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(rows), 1)), (b"IEND", b""))
    body = b"".join(
        len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big") for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body
