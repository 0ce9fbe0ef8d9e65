"""The rules of the stylesheet that no component owns: type, bands, buttons, cards, and what stands in more than one.

Components refer to the theme by variables alone, so a deep band or a dark scheme changes all of them at once.
"""

from __future__ import annotations

from typing import Final

BASE_STYLE: Final = """\
*, *::before, *::after { box-sizing: border-box; }
html {
  --gutter: clamp(1.25rem, 4vw, 2.75rem);
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
  overflow-wrap: anywhere;
}
h1, h2, h3, h4, h5, h6 {
  margin: 0;
  font-family: var(--font-headings);
  font-weight: var(--heading-weight);
  letter-spacing: var(--heading-tracking);
  line-height: 1.15;
  text-wrap: balance;
  color: var(--ink);
}
h1, h2 { font-size: calc(clamp(1.8rem, 1.3rem + 1.9vw, 2.7rem) * var(--heading-scale)); }
h3, h4, h5, h6 { font-weight: var(--subheading-weight); line-height: 1.3; letter-spacing: -.005em; }
h3 { font-size: calc(1.25rem * var(--heading-scale)); }
h4, h5, h6 { font-size: calc(1.1rem * var(--heading-scale)); }
p { margin: 0; text-wrap: pretty; }
ul, ol { margin: 0; }
img { display: block; max-width: 100%; height: auto; }
address { font-style: normal; }
a { color: var(--link); text-underline-offset: .2em; text-decoration-thickness: 1px; }
a:hover { text-decoration-thickness: 2px; }
:focus-visible { outline: 3px solid var(--focus); outline-offset: 3px; border-radius: 2px; }
.wrap { width: min(100% - 2 * var(--gutter), 72rem); margin-inline: auto; }
.band { padding-block: calc(clamp(3.5rem, 2.25rem + 4.5vw, 6.5rem) * var(--space)); }
.tone-tinted { --card: var(--card-on-tint); --mark: var(--mark-on-tint); background: var(--tint); }
.tone-deep {
  --ink: var(--on-deep);
  --muted: var(--deep-muted);
  --line: var(--deep-line);
  --field: var(--deep-muted);
  --link: var(--deep-accent);
  --surface: var(--deep-card);
  --card: var(--card-on-deep);
  --focus: var(--deep-accent);
  --tint: var(--deep-card);
  background: var(--deep);
  color: var(--on-deep);
}
.tone-plain + .tone-plain:not(.hero),
.tone-tinted + .tone-tinted,
.tone-deep:not(.hero) + .tone-deep { padding-top: 0; }
.tone-deep .button:not(.button-quiet) {
  background: var(--deep-accent);
  border-color: var(--deep-accent);
  color: var(--deep);
}
.tone-deep .button:not(.button-quiet):hover { background: var(--on-deep); border-color: var(--on-deep); }
.intro {
  max-width: 44rem;
  margin-inline: var(--intro-margin);
  margin-bottom: clamp(2rem, 1.5rem + 1.8vw, 3.25rem);
  text-align: var(--intro-align);
}
.intro .lead { margin-top: .9rem; }
.lead { font-size: 1.13rem; color: var(--muted); }
.eyebrow {
  margin-bottom: .8rem;
  font-size: .84rem;
  font-weight: 700;
  letter-spacing: .1em;
  line-height: 1.4;
  text-transform: uppercase;
  color: var(--link);
}
main > :not(section, figure, .visually-hidden) { width: min(100% - 2 * var(--gutter), 72rem); margin: 1.75rem auto; }
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
  transition: background-color .15s, border-color .15s;
}
.button:hover { background: var(--fill-hover); }
.button-quiet { background: transparent; border-color: var(--field); color: var(--ink); }
.button-quiet:hover { background: var(--tint); border-color: var(--link); }
.button-small { padding: .5rem 1.1rem; font-size: .95rem; }
.cards { list-style: none; margin: 0; padding: 0; display: grid; gap: clamp(1.1rem, 2.2vw, 1.75rem); }
.card {
  display: flex;
  flex-direction: column;
  min-width: 0;
  padding: var(--card-padding);
  border: solid var(--line);
  border-width: var(--card-border);
  border-radius: var(--card-radius);
  background: var(--card);
  box-shadow: var(--card-shadow);
}
.tone-deep .card { box-shadow: none; }
.card p { color: var(--muted); }
.card h2, .card h3, .card h4 { font-size: calc(1.22rem * var(--heading-scale)); }
.card h2 + p, .card h3 + p, .card h4 + p { margin-top: .5rem; }
.card-image {
  width: 100%;
  aspect-ratio: 4 / 3;
  object-fit: cover;
  margin-bottom: 1.2rem;
  border-radius: min(var(--radius), 1rem);
}
.card-link { margin-top: auto; padding-top: .9rem; font-weight: 600; }
.card-link a { text-decoration: none; }
.card-link a:hover { text-decoration: underline; }
.card-link a::after { content: " →"; content: " →" / ""; }
.cards-1 { max-width: 36rem; margin-inline: var(--intro-margin); }
@media (min-width: 40rem) { .cards-2, .cards-3, .cards-4 { grid-template-columns: repeat(2, 1fr); } }
@media (min-width: 40rem) and (max-width: 60rem) {
  .cards-3 > :last-child:nth-child(odd) { grid-column: 1 / -1; }
}
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
.art { display: block; width: 100%; height: 100%; }
.art-ground { fill: var(--tint); }
.art-fill { fill: var(--fill); }
.art-accent { fill: var(--accent); }
.art-deep { fill: var(--deep); }
.art-paper { fill: var(--surface); }
.art-line { fill: none; stroke: var(--fill); stroke-width: 2; }
.art-accent-line { fill: none; stroke: var(--accent); stroke-width: 4; stroke-linecap: round; stroke-linejoin: round; }
.art-soft { opacity: .55; }
.art-faint { opacity: .22; }
.contact-lines { list-style: none; margin: 0; padding: 0; display: grid; gap: .7rem; }
.contact-lines li { display: grid; grid-template-columns: 1.4rem 1fr; gap: .75rem; align-items: start; }
.contact-lines li > :last-child { min-width: 0; overflow-wrap: anywhere; }
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
@media (prefers-reduced-motion: reduce) {
  html { scroll-behavior: auto; }
  * { transition: none; }
}
@media print { .site-nav, .menu-button, .form, .skip { display: none; } }
"""
