"""Site files and edits of them, made up from a seed: pages with the repetition of real ones."""

from __future__ import annotations

import difflib
from random import Random

TOPICS = (
    "bread",
    "coffee",
    "garden",
    "travel",
    "music",
    "books",
    "tools",
    "wine",
    "kids",
    "health",
    "bikes",
    "ceramics",
)
ADJECTIVES = ("fresh", "slow", "honest", "bright", "local", "quiet", "bold", "small", "warm", "early")


def phrase(rng: Random) -> str:
    one, other = (f"{rng.choice(ADJECTIVES)} {rng.choice(TOPICS)}" for _ in range(2))
    return f"{one} for {other} {rng.randint(1, 99)}"


def page(rng: Random) -> list[str]:
    lines = [
        "<!doctype html>",
        '<html lang="en">',
        "  <head>",
        f"    <title>{phrase(rng)}</title>",
        '    <link rel="stylesheet" href="css/site.css">',
        "  </head>",
        "  <body>",
    ]
    for number in range(rng.randint(3, 8)):
        lines += [f'    <section id="s{number}" class="{rng.choice(TOPICS)}">', f"      <h2>{phrase(rng)}</h2>"]
        lines += [f"      <p>{phrase(rng)}</p>" for _ in range(rng.randint(0, 2))]
        lines += (
            ["      <ul>"]
            + [
                line
                for _ in range(rng.randint(1, 4))
                for line in (
                    "        <li>",
                    f'          <a href="{rng.choice(TOPICS)}.html">{phrase(rng)}</a>',
                    "        </li>",
                )
            ]
            + ["      </ul>", "    </section>"]
        )
        if rng.random() < 0.5:
            lines.append("")
    return [*lines, "  </body>", "</html>"]


def style(rng: Random) -> list[str]:
    lines = [":root {", f"  --brand: #{rng.randrange(0xFFFFFF):06x};", "}", ""]
    for topic in rng.sample(TOPICS, rng.randint(4, 9)):
        lines += [
            f".{topic} {{",
            f"  color: #{rng.randrange(0xFFFFFF):06x};",
            "  display: flex;",
            f"  padding: {rng.randint(1, 40)}px;",
            "}",
            "",
        ]
    return lines


def script(rng: Random) -> list[str]:
    lines = ["'use strict';", ""]
    for topic in rng.sample(TOPICS, rng.randint(3, 7)):
        lines += [
            f"function {topic}(event) {{",
            f"  const element = document.querySelector('.{topic}');",
            "  if (!element) {",
            "    return;",
            "  }",
            f"  element.textContent = '{phrase(rng)}';",
            f"  // {phrase(rng)}",
            "}",
            "",
        ]
    return lines


MAKERS = {"index.html": page, "css/site.css": style, "js/site.js": script}


def edit(rng: Random, lines: list[str]) -> list[str]:
    """Change a file as a request to a site's editor would: words, values, a new or a dropped line, a new block."""
    out = list(lines)
    for _ in range(rng.randint(1, 3)):
        place = rng.choice([at for at, line in enumerate(out) if line.strip()])
        indent = out[place][: len(out[place]) - len(out[place].lstrip())]
        what = rng.random()
        if what < 0.55:
            out[place] = f"{out[place]}<!-- {phrase(rng)} -->" if rng.random() < 0.3 else f"{indent}{phrase(rng)}"
        elif what < 0.8:
            new = [f"{indent}<em>{phrase(rng)}</em>"]
            if rng.random() < 0.3:
                new += [f"{indent}<div>", f"{indent}  {phrase(rng)}", f"{indent}</div>"]
            out[place:place] = new
        else:
            del out[place : place + rng.randint(1, 3)]
    return out if out != lines else [*lines, phrase(rng)]


def unified(path: str, old: list[str], new: list[str], context: int = 3) -> list[bytes]:
    """Return a unified diff of two files whose lines all end in a line feed."""
    header = [f"diff --git a/{path} b/{path}\n"]
    body = difflib.unified_diff([f"{x}\n" for x in old], [f"{x}\n" for x in new], f"a/{path}", f"b/{path}", n=context)
    return [line.encode() for line in [*header, *body]]


def data_of(lines: list[str], end: str = "\n") -> bytes:
    return "".join(line + end for line in lines).encode()
