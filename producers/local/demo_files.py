"""The files of the demo's sites that are not copies of the shipped one."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping

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
    """Return the files of the code agent's site."""
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
