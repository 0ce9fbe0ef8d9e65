"""The one stylesheet: the theme's variables, the base, and the rules of every component.

It always holds the rules of all components. Then a change of content never changes it, and an edit of the stylesheet
by another tier survives the next edit of the content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from sandbox.spec.component import Component
from sandbox.spec.theme import FONT_STACKS, PRESETS, RADII, SPACINGS, Theme, palette

_BASE: Final = """
*, *::before, *::after { box-sizing: border-box; }
html {
  -webkit-text-size-adjust: 100%;
  text-size-adjust: 100%;
  scroll-behavior: smooth;
  scroll-padding-top: 1rem;
}
body {
  margin: 0;
  background: var(--bg);
  color: var(--ink);
  font: 400 1.0625rem/1.65 var(--font);
  -webkit-font-smoothing: antialiased;
  overflow-wrap: break-word;
}
h1, h2, h3, h4, h5, h6 {
  margin: 0;
  font-family: var(--font-headings);
  font-weight: 700;
  line-height: 1.2;
  text-wrap: balance;
  color: var(--ink);
}
h1, h2 { font-size: clamp(1.75rem, 1.35rem + 1.7vw, 2.6rem); letter-spacing: -.015em; }
h3 { font-size: 1.25rem; }
h4, h5, h6 { font-size: 1.1rem; }
p { margin: 0; text-wrap: pretty; }
ul, ol { margin: 0; }
img { display: block; max-width: 100%; height: auto; }
address { font-style: normal; }
a { color: var(--link); text-underline-offset: .2em; text-decoration-thickness: 1px; }
a:hover { text-decoration-thickness: 2px; }
:focus-visible { outline: 3px solid var(--focus); outline-offset: 3px; border-radius: 2px; }
.wrap { width: min(100% - 2.5rem, 72rem); margin-inline: auto; }
.band { padding-block: calc(clamp(3.5rem, 2.25rem + 4.5vw, 6.25rem) * var(--space)); }
.tone-tinted { background: var(--tint); }
.tone-deep {
  --ink: var(--on-deep);
  --muted: var(--deep-muted);
  --line: var(--deep-line);
  --field: var(--deep-muted);
  --link: var(--deep-accent);
  --surface: var(--deep);
  --focus: var(--deep-accent);
  --tint: var(--deep-line);
  background: var(--deep);
  color: var(--on-deep);
}
.tone-deep .button:not(.button-quiet) {
  background: var(--deep-accent);
  border-color: var(--deep-accent);
  color: var(--deep);
}
.intro { max-width: 44rem; margin-bottom: clamp(2rem, 1.5rem + 1.5vw, 3rem); }
.intro .lead { margin-top: .9rem; }
.lead { font-size: 1.13rem; color: var(--muted); }
.eyebrow {
  margin-bottom: .8rem;
  font-size: .88rem;
  font-weight: 700;
  letter-spacing: .09em;
  text-transform: uppercase;
  color: var(--link);
}
main > :not(section, figure, .visually-hidden) { width: min(100% - 2.5rem, 72rem); margin: 1.75rem auto; }
.small { margin-top: 1.5rem; font-size: .92rem; color: var(--muted); }
.actions { display: flex; flex-wrap: wrap; gap: .8rem; }
.button {
  display: inline-block;
  padding: .8rem 1.5rem;
  border: 2px solid var(--fill-edge);
  border-radius: min(var(--radius), 3rem);
  background: var(--fill);
  color: var(--on-fill);
  font: inherit;
  font-weight: 650;
  line-height: 1.25;
  text-align: center;
  text-decoration: none;
  cursor: pointer;
}
.button:hover { background: var(--fill-hover); }
.button-quiet { background: transparent; border-color: var(--field); color: var(--ink); }
.button-quiet:hover { background: var(--tint); border-color: var(--link); }
.button-small { padding: .5rem 1.1rem; font-size: .95rem; }
.cards { list-style: none; margin: 0; padding: 0; display: grid; gap: clamp(1.1rem, 2.5vw, 1.75rem); }
.card {
  display: flex;
  flex-direction: column;
  padding: clamp(1.4rem, 1rem + 1.2vw, 1.9rem);
  border: 1px solid var(--line);
  border-radius: var(--radius);
  background: var(--surface);
}
.card p { color: var(--muted); }
.card h2, .card h3, .card h4 { font-size: 1.22rem; }
.card h2 + p, .card h3 + p, .card h4 + p { margin-top: .5rem; }
.card-image {
  width: 100%;
  aspect-ratio: 4 / 3;
  object-fit: cover;
  margin-bottom: 1.2rem;
  border-radius: min(var(--radius), 1rem);
}
@media (min-width: 40rem) { .cards-2, .cards-3, .cards-4 { grid-template-columns: repeat(2, 1fr); } }
@media (min-width: 60rem) {
  .cards-3 { grid-template-columns: repeat(3, 1fr); }
  .cards-4 { grid-template-columns: repeat(4, 1fr); }
}
.icon {
  width: 1.5rem;
  height: 1.5rem;
  fill: none;
  stroke: currentColor;
  stroke-width: 1.6;
  stroke-linecap: round;
  stroke-linejoin: round;
  flex: none;
}
.contact-lines { list-style: none; margin: 0; padding: 0; display: grid; gap: .7rem; }
.contact-lines li { display: grid; grid-template-columns: 1.4rem 1fr; gap: .75rem; align-items: start; }
.contact-lines .icon { width: 1.35rem; height: 1.35rem; margin-top: .16rem; color: var(--link); }
.visually-hidden {
  position: absolute;
  width: 1px;
  height: 1px;
  margin: -1px;
  overflow: hidden;
  clip-path: inset(50%);
  white-space: nowrap;
}
.skip {
  position: absolute;
  left: 1rem;
  top: -5rem;
  z-index: 9;
  padding: .7rem 1.2rem;
  border-radius: 0 0 var(--radius) var(--radius);
  background: var(--ink);
  color: var(--bg);
}
.skip:focus { top: 0; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
@media print { .site-nav, .form, .skip { display: none; } }
"""


def theme_class(theme: Theme) -> str:
    """Return the class that puts a page into a theme other than the index page's."""
    return "theme-" + hashlib.sha256(theme.model_dump_json().encode()).hexdigest()[:8]


def stylesheet(theme: Theme, others: Mapping[str, Theme], components: Mapping[str, Component]) -> bytes:
    """Return the stylesheet of a site.

    Args:
        theme: the index page's.
        others: themes of other pages by their class.
        components: the whole catalog.
    """
    parts = [_variables(":root", theme)]
    parts += [_variables(f":root.{name}", other) for name, other in sorted(others.items())]
    parts.append(_BASE.strip())
    parts += [component.css.strip() for _, component in sorted(components.items()) if component.css.strip()]
    return ("\n".join(parts) + "\n").encode()


def _variables(selector: str, theme: Theme) -> str:
    preset = PRESETS[theme.preset]
    fixed = {
        "font": FONT_STACKS[theme.font or preset.font],
        "font-headings": FONT_STACKS[theme.headings or theme.font or preset.headings],
        "radius": RADII[theme.radius or preset.radius],
        "space": SPACINGS[theme.spacing or "regular"],
    }
    first = palette(theme, dark=theme.mode == "dark")
    scheme = {"auto": "light dark", "light": "light", "dark": "dark"}[theme.mode]
    rules = _rule(selector, {**fixed, **first}, scheme)
    if theme.mode == "auto":
        dark = _rule(selector, palette(theme, dark=True), None).replace("\n", "\n  ")
        rules += f"\n@media (prefers-color-scheme: dark) {{\n  {dark}\n}}"
    return rules


def _rule(selector: str, variables: Mapping[str, str], scheme: str | None) -> str:
    lines = [f"  color-scheme: {scheme};"] if scheme else []
    lines += [f"  --{name}: {value};" for name, value in variables.items()]
    return f"{selector} {{\n" + "\n".join(lines) + "\n}"
