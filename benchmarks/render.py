"""What does it cost to make a page of a spec? 50 elements, from JSON text through validation to HTML and CSS."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from benchmarks.environments import node_with
from benchmarks.inputs import page
from benchmarks.race import Peer, Race, Start, calls_of, command, module
from sites.spec.model import parse_site
from sites.spec.render import render

_JSON_RENDER = {
    "@json-render/core": "0.21.4",
    "@json-render/react": "0.20.0",
    "react": "19.3.1",
    "react-dom": "19.3.1",
    "zod": "4.6.7",
}
_SCRIPT = Path(__file__).parent / "peers" / "json_render.mjs"


def operation() -> Callable[[], object]:
    """Return what makes the page."""
    text = json.dumps(page())
    return lambda: render(parse_site(text))


def _json_render() -> Start:
    return lambda: command(["node", str(_SCRIPT), str(node_with(_JSON_RENDER)), json.dumps(page())])


QUESTION = Race(
    name="render",
    asks="A page of 50 elements, from the text of its spec to validated HTML",
    ours=module(__name__),
    peers=(
        Peer("@json-render/react 0.20.0 with validate", _json_render(), target=1),
        Peer("plain Python, json.loads and no validation", module("benchmarks.peers.plain_page")),
    ),
    count_calls=calls_of(__name__),
)
