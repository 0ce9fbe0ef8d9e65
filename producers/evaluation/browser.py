"""Opens results in Chromium: what scripts do, what axe finds, which places look different, and pictures.

Needs the extra `eval` and Chromium on the path. A page is opened with nothing around it: whatever it wants of another
host fails. Visits go to the preview itself, with the headers that visitors get.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import shutil
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from importlib import resources
from importlib.util import find_spec
from itertools import count
from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

from producers.chromium import LEAN
from producers.evaluation.cases import Files, Then, VisitStep, changed_places, digest_of, is_page

if TYPE_CHECKING:
    from playwright.async_api import Browser as Chromium
    from playwright.async_api import Page, Route

ResultT = TypeVar("ResultT")

_WINDOW: Any = {"viewport": {"width": 1280, "height": 1600}, "timezone_id": "UTC"}
_TABS = 3
_ARGUMENTS = (
    "--no-sandbox",
    "--hide-scrollbars",
    "--disable-gpu",
    LEAN,
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE *.localhost, EXCLUDE 127.0.0.1",
)
_STEP_MS = 5000
_PAGE_SECONDS = 30
_AXE_RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa")
_PLACES = """async () => {
  await Promise.all([...document.images].map(each => { each.loading = "eager"; return each.decode().catch(() => 0) }));
  for (const each of document.getAnimations()) { try { each.finish() } catch { each.cancel() } }
  const marks = "section[id], header, footer, nav";
  const styles = ["color", "background-color", "background-image", "font-family", "font-size", "font-weight",
    "font-style", "line-height", "letter-spacing", "text-transform", "text-decoration-line", "text-align", "opacity",
    "visibility", "border-top", "border-right", "border-bottom", "border-left", "border-radius", "box-shadow",
    "object-fit", "filter"];
  const round = value => Math.round(value) + 0, found = {};  // -0 is 0
  const facts = (element, origin) => {
    const box = element.getBoundingClientRect(), style = getComputedStyle(element);
    if (!box.width || !box.height || style.display === "none") return null;
    const texts = [...element.childNodes].filter(node => node.nodeType === 3).map(node => node.data.trim());
    const text = texts.filter(Boolean).join(" ");
    const place = origin ? [round(box.left - origin.left), round(box.top - origin.top), round(box.height)] : [];
    const source = element.currentSrc ? new URL(element.currentSrc).pathname : "";
    return [element.tagName, text, source, ...place, round(box.width),
      ...styles.map(name => style.getPropertyValue(name))];
  };
  const outermost = [...document.querySelectorAll(marks)].filter(each => !each.parentElement.closest(marks));
  for (const each of outermost) {
    const name = each.matches("section") ? each.id : each.tagName.toLowerCase();
    const {left, top} = each.getBoundingClientRect();
    const inside = {left, top: top + parseFloat(getComputedStyle(each).paddingTop)};
    const shown = [facts(each), ...[...each.querySelectorAll("*")].map(one => facts(one, inside))];
    (found[name] ??= []).push(...shown.filter(Boolean));
  }
  found.body = [...document.body.querySelectorAll("*")]
    .filter(each => !each.closest(marks) && !each.querySelector(marks)).map(each => facts(each)).filter(Boolean);
  return found;
}"""
"""By place, as in `changed_places`: what each of its visible elements looks like, relative to the place.

The space around a place depends on its neighbours and is not looked at.
"""
_AXE = """async rules => {
  const found = await axe.run(document, {runOnly: rules, resultTypes: ["violations"]}), counts = {};
  for (const each of found.violations) for (const {any} of each.nodes) {
    const colours = any.find(check => check.data?.bgColor)?.data;
    if (colours) counts[`${each.id} of ${colours.fgColor} on ${colours.bgColor}`] = 1;
    else counts[each.id] = (counts[each.id] ?? 0) + 1;
  }
  return counts;
}"""
"""Counts by rule; of a pair of colours only that it is there, for a site's own faint text may get more of it."""
_NOW = datetime(2026, 1, 12, 11, tzinfo=UTC)
"""When pages are looked at: a Monday."""


@dataclass(frozen=True)
class Look:
    """One page as Chromium shows it."""

    places: Mapping[str, str]
    """Digest of what each place looks like."""
    violations: Mapping[str, int]
    """How often it breaks a rule of WCAG 2.1 A or AA, by axe's name of the rule."""
    errors: tuple[str, ...]
    """What its scripts complain of."""
    asked: frozenset[str]
    """Other hosts that it asked for something while it opened."""
    picture: bytes


def can_browse() -> bool:
    """Whether the extra `eval` and Chromium are there."""
    return _chromium() is not None and all(find_spec(name) for name in ("playwright", "axe_playwright_python"))


def _chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("google-chrome")


def differences(then: Then, looks: Mapping[str, tuple[Look | None, Look]]) -> list[str]:
    """Return what got worse, or looks different without being asked for; of a new page, what no other page has.

    Args:
        then: what the case wants.
        looks: pages as they looked before, if they were there, and look now.
    """
    allowed = then.looks if then.looks is not None else then.only
    known = [look for look, _ in looks.values() if look is not None]
    found = []
    for path, (was, now) in looks.items():
        rules = {
            rule: was.violations.get(rule, 0)
            if was
            else max((each.violations.get(rule, 0) for each in known), default=0)
            for rule in now.violations
        }
        found += [
            f"{path}: axe: {rule}, {now.violations[rule]} places"
            for rule, most in rules.items()
            if now.violations[rule] > most
        ]
        found += [f"{path}: script: {error}" for error in now.errors if was is None or error not in was.errors]
        found += [f"{path} asks {host} as it opens" for host in sorted(now.asked - (was.asked if was else frozenset()))]
        if was is None or allowed is None:
            continue
        places = [
            place for place in was.places.keys() | now.places.keys() if was.places.get(place) != now.places.get(place)
        ]
        found += [
            f"{path} {place} looks different, which nobody asked for"
            for place in sorted(places)
            if not any(fnmatchcase(f"{path} {place}", pattern) for pattern in allowed)
        ]
    return found


@dataclass
class _Tab:
    """A tab in which pages are looked at, one after the other."""

    page: Page
    errors: list[str] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)


async def _open_tab(chromium: Chromium, serve: Callable[[Route], Awaitable[None]]) -> _Tab:
    context = await chromium.new_context(**_WINDOW)
    await context.route("**/*", serve)
    await context.clock.set_fixed_time(_NOW)
    tab = _Tab(await context.new_page())
    tab.page.on("pageerror", lambda error: tab.errors.append(str(error)[:200]))
    tab.page.on("request", lambda request: tab.asked.add(urlsplit(request.url).hostname or ""))
    return tab


class Browser:
    """Chromium, in an event loop of a thread of its own; used by the threads that run cases."""

    def __init__(self, *, takes_pictures: bool = False) -> None:
        self._takes_pictures = takes_pictures
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="browser", daemon=True)
        self._seen: dict[str, Look] = {}
        self._axe = (resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
        self._chromium: Chromium
        self._free: asyncio.Queue[_Tab] = asyncio.Queue()
        self._sites: dict[str, Files] = {}
        """By host name."""
        self._numbers = count()

    @contextmanager
    def running(self) -> Iterator[Browser]:
        """Run while the context is open."""
        from playwright.async_api import async_playwright

        self._thread.start()
        playwright = self._wait(async_playwright().start())
        try:
            self._chromium = self._wait(playwright.chromium.launch(executable_path=_chromium(), args=list(_ARGUMENTS)))
            for _ in range(_TABS):
                self._free.put_nowait(self._wait(_open_tab(self._chromium, self._serve)))
            yield self
        finally:
            self._wait(playwright.stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PAGE_SECONDS * 4)

    def compare(self, before: Files, after: Files) -> dict[str, tuple[Look | None, Look]]:
        """Return the pages that may look different, as they looked before and look now, the front page first."""
        changed = {place.split(" ")[0] for place in changed_places(before, after)}
        is_everywhere = any(not is_page(path) and path in before for path in changed)
        pages = [path for path in sorted(after) if is_page(path) and (is_everywhere or path in changed)]
        pages.sort(key=lambda path: (path not in changed, path != "index.html"))
        looks = {}
        for path in pages:
            was = self._look(before, path) if path in before else None
            looks[path] = was, self._look(after, path, like=was if path not in changed else None)
        return looks

    def _look(self, files: Files, path: str, *, like: Look | None = None) -> Look:
        shown = {name: data for name, data in files.items() if not is_page(name) or name == path}
        key = f"{path} {digest_of(shown)}"
        if key not in self._seen:
            self._seen[key] = self._wait(self._open(files, path, like))
        return self._seen[key]

    async def _open(self, files: Files, path: str, like: Look | None) -> Look:
        """Look at a page; `like` is how the same source looked, which spares axe what looks the same."""
        tab = await self._free.get()
        host = f"s{next(self._numbers)}.localhost"
        self._sites[host] = files
        try:
            tab.errors, tab.asked = [], set()
            await tab.page.goto(f"http://{host}/{quote(path)}", wait_until="load")
            places = await tab.page.evaluate(_PLACES)
            picture = await tab.page.screenshot(animations="disabled") if self._takes_pictures else b""
            digests = {name: hashlib.sha256(json.dumps(facts).encode()).hexdigest() for name, facts in places.items()}
            if like is not None and like.places == digests:
                violations = like.violations
            else:
                await tab.page.evaluate(self._axe)
                violations = await tab.page.evaluate(_AXE, list(_AXE_RULES))
            return Look(digests, violations, tuple(dict.fromkeys(tab.errors)), frozenset(tab.asked - {host}), picture)
        finally:
            del self._sites[host]
            self._free.put_nowait(tab)

    async def _serve(self, route: Route) -> None:
        """Answer with a file of the host's; whatever is wanted of another host fails."""
        url = urlsplit(route.request.url)
        if (files := self._sites.get(url.hostname or "")) is None:
            await route.continue_()
            return
        path = unquote(url.path).removeprefix("/")
        path = path if path and not path.endswith("/") else path + "index.html"
        if (data := files.get(path)) is None:
            await route.fulfill(status=404)
        else:
            await route.fulfill(body=data, content_type=guess_type(path)[0] or "application/octet-stream")

    def visit(self, url: str, visits: Sequence[Sequence[VisitStep]]) -> list[str]:
        """Make the visits of a case to a preview at `url`, each with a fresh storage; return what did not come true."""
        return [finding for visit in visits if (finding := self._wait(self._visit(url, visit)))]

    async def _visit(self, url: str, steps: Sequence[VisitStep]) -> str:
        from playwright.async_api import Error

        context = await self._chromium.new_context(**_WINDOW)
        context.set_default_timeout(_STEP_MS)
        context.set_default_navigation_timeout(_PAGE_SECONDS * 1000)
        page = await context.new_page()
        try:
            for number, step in enumerate(steps, 1):
                try:
                    complaint = await _take(page, step, url)
                except Error as error:
                    complaint = str(error.message).splitlines()[0]
                if complaint:
                    return f"a visitor's step {number}, {step}: {complaint}"
        finally:
            await context.close()
        return ""


def write_pictures(looks: Mapping[str, tuple[Look | None, Look]], out: Path) -> tuple[str, ...]:
    """Write pictures of the first page, and return their file names: before, if it was there, and after.

    `out` is their path without `-before.png`.
    """
    for before, after in looks.values():
        sides = [("before", before), ("after", after)]
        written = [(out.with_name(f"{out.name}-{name}.png"), look.picture) for name, look in sides if look is not None]
        for path, data in written:
            path.write_bytes(data)
        return tuple(path.name for path, _ in written)
    return ()


async def _take(page: Page, step: VisitStep, url: str) -> str:
    """Take one step; return what a visitor misses, empty if nothing."""
    from playwright.async_api import expect

    [(name, value)] = step.model_dump(exclude_defaults=True, mode="json").items()
    acts: dict[str, Callable[[], Awaitable[object]]] = {
        "open": lambda: page.goto(url.rsplit("/", 1)[0] + "/" + value, wait_until="load"),
        "click": lambda: page.locator(value).first.click(),
        "hover": lambda: page.locator(value).first.hover(),
        "press": lambda: page.keyboard.press(value),
        "fill": lambda: page.locator(value[0]).first.fill(value[1]),
        "choose": lambda: page.locator(value[0]).first.select_option(label=value[1]),
        "scroll": lambda: page.evaluate("y => { scrollTo(0, y); return new Promise(requestAnimationFrame) }", value),
        "width": lambda: page.set_viewport_size({"width": value, "height": 900}),
        "clock": lambda: page.clock.set_fixed_time(value),
        "scrolled": lambda: page.wait_for_function("y => Math.abs(scrollY - y) < 2", arg=value),
        "sees": lambda: expect(page.locator(value).locator("visible=true").first).to_be_visible(timeout=_STEP_MS),
        "misses": lambda: expect(page.locator(value).locator("visible=true")).to_have_count(0, timeout=_STEP_MS),
        "reads": lambda: expect(page.locator(value[0]).first).to_have_text(re.compile(value[1]), timeout=_STEP_MS),
        "style": lambda: expect(page.locator(value[0]).first).to_have_css(
            value[1], re.compile(value[2]), timeout=_STEP_MS
        ),
    }
    try:
        await acts[name]()
    except AssertionError as error:
        return str(error).splitlines()[0]
    return ""
