"""The languages of a site's pages: a page at `xx/PATH` whose language is xx is page PATH in that language (issue 20).

Pages without such a relation are as if this module did not exist. It reads `lang` as the spec spells it out, for shared
elements depend on it, and so all that expressions could say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from sites.spec.model import INDEX, JsonObject, Site

_IN_FOLDER: Final = re.compile(r"([a-z]{2,3})/(.+)")
_ADDRESS: Final = re.compile(r"/*([^?#]*)(.*)", re.S)
_OWN_NAMES: Final = (
    "ar:العربية bg:Български bs:Bosanski ca:Català cs:Čeština cy:Cymraeg da:Dansk de:Deutsch el:Ελληνικά en:English "
    "es:Español et:Eesti eu:Euskara fa:فارسی fi:Suomi fr:Français ga:Gaeilge gl:Galego he:עברית hi:हिन्दी hr:Hrvatski "
    "hu:Magyar id:Indonesia is:Íslenska it:Italiano ja:日本語 ko:한국어 lb:Lëtzebuergesch lt:Lietuvių lv:Latviešu "
    "mk:Македонски nb:Norsk nl:Nederlands no:Norsk oc:Occitan pl:Polski pt:Português rm:Rumantsch ro:Română ru:Русский "
    "sk:Slovenčina sl:Slovenščina sq:Shqip sr:Српски sv:Svenska th:ไทย tr:Türkçe uk:Українська vi:Việt zh:中文"
)
_RIGHT_TO_LEFT: Final = frozenset(["ar", "ckb", "dv", "fa", "he", "ks", "ps", "sd", "ug", "ur", "yi"])
_RIGHT_TO_LEFT_SCRIPTS: Final = frozenset(["Arab", "Hebr", "Nkoo", "Syrc", "Thaa"])
_SCRIPT_LETTERS: Final = 4
_NAMES: Final[Mapping[str, str]] = dict(entry.split(":", 1) for entry in _OWN_NAMES.split())


class Version(NamedTuple):
    """A page in one language."""

    lang: str
    """As the page says it (BCP 47)."""
    path: str
    name: str
    """What links to it say."""


@dataclass(frozen=True)
class Languages:
    """Which pages of a site are the same page in several languages."""

    groups: Mapping[str, tuple[Version, ...]] = field(default_factory=dict)
    """By the path of each page that has versions or is one: all of them, the original first."""
    everywhere: bool = False
    """Whether a page that is not in a language leads to the home page in it."""

    def of(self, path: str) -> tuple[Version, ...]:
        """Return a page in all its languages, the original first; nothing for a page in one language."""
        return self.groups.get(path, ())

    def offered(self, path: str, lang: str) -> tuple[Version, ...]:
        """Return where a page in a language leads for those who read another one."""
        own = self.of(path)
        spoken = {primary(lang), *(primary(version.lang) for version in own)}
        homes = [home for home in self.of(INDEX) if self.everywhere and primary(home.lang) not in spoken]
        return (*(version for version in own if version.path != path), *homes)

    def original(self, path: str) -> str:
        """Return the page of which a page is a version: itself if it is none."""
        versions = self.groups.get(path)
        return versions[0].path if versions else path

    def towards(self, address: str, page: str) -> str:
        """Return where a link of a page leads: to the version in the page's language, where there is one.

        Args:
            address: as the spec has it, from the root of the site.
            page: the path of the page that holds the link.
        """
        if (folder := self.folder(page)) is None:
            return address
        match = _ADDRESS.fullmatch(address)
        if match is None or (not match[1] and not address.startswith("/")):
            return address
        target = f"{folder}/{match[1] or INDEX}"
        return target + match[2] if self.folder(target) else address

    def folder(self, path: str) -> str | None:
        """Return the folder of a version; None for any other page."""
        return path.partition("/")[0] if self.original(path) != path else None

    def home_with(self, site: Site, path: str, key: object) -> str:
        """Return the page whose element is shared: its language's home page, if it has the element, else index.html."""
        home = self.towards(INDEX, path) if path != INDEX else INDEX
        return home if home not in (INDEX, path) and key in keys_below_root(site.pages[home]) else INDEX


def languages_of(site: Site) -> Languages:
    """Return the languages of a site's pages, whose structure has no errors."""
    found: dict[str, list[Version]] = {}
    for path in sorted(site.pages):
        match = _IN_FOLDER.fullmatch(path)
        if match is None or match[2] not in site.pages:
            continue
        lang, original = lang_of(site.pages[path]), lang_of(site.pages[match[2]])
        if primary(lang) == match[1] != primary(original) and not _is_version(site, match[2]):
            found.setdefault(match[2], [_version(site, match[2], INDEX)]).append(
                _version(site, path, f"{match[1]}/{INDEX}")
            )
    if not found:
        return Languages()
    groups = [tuple(versions) for versions in found.values()]
    everywhere = root_props(site.pages[INDEX]).get("languages_everywhere") is True
    return Languages({version.path: versions for versions in groups for version in versions}, everywhere)


def _version(site: Site, path: str, home: str) -> Version:
    """Return a page in its language, called as it, or else the home page in that language, wants."""
    lang = lang_of(site.pages[path])
    pages = (site.pages[each] for each in (path, home) if each in site.pages)
    wanted = next((name for page in pages if (name := root_props(page).get("language_name"))), None)
    return Version(lang, path, wanted if isinstance(wanted, str) else own_name(lang))


def lead_everywhere(before: Site | None, after: Site) -> Site:
    """Return a site all of whose pages lead to its home page in a further language, if that page is new in it.

    Pages that were built before such links existed stay as they are, byte for byte.
    """
    known = languages_of(before).of(INDEX) if before is not None else ()
    if {home.path for home in languages_of(after).of(INDEX)} <= {INDEX, *(home.path for home in known)}:
        return after
    pages = after.to_dict()["pages"]
    pages[INDEX]["elements"][pages[INDEX]["root"]]["props"]["languages_everywhere"] = True
    return Site(pages)


def outdated(before: Site, after: Site) -> tuple[str, ...]:
    """Return the versions of changed pages that an edit left as they were; a look is the same in every language."""
    return tuple(
        version.path
        for path, versions in sorted(languages_of(after).groups.items())
        if path == versions[0].path and _says_else(before.pages.get(path), after.pages[path])
        for version in versions[1:]
        if before.pages.get(version.path) == after.pages[version.path]
    )


def _says_else(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> bool:
    if before is None or before["root"] != after["root"]:
        return True
    root = after["root"]
    return {**before["elements"], root: None} != {**after["elements"], root: None}


def main_language(site: Site) -> str:
    """Return the language of a site's front page."""
    return lang_of(site.pages[INDEX])


def lang_of(page: Mapping[str, Any]) -> str:
    """Return the language that a page spells out; empty for one that only an expression gives."""
    lang = root_props(page).get("lang", "en")
    return lang if isinstance(lang, str) else ""


def root_props(page: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the props of a page's root."""
    props: Mapping[str, Any] = page["elements"][page["root"]].get("props", {})
    return props


def props_to_set(page: JsonObject) -> JsonObject:
    """Return the props of a page's root, of a page that may not have any yet."""
    props: JsonObject = page["elements"][page["root"]].setdefault("props", {})
    return props


def primary(lang: str) -> str:
    """Return the primary tag of a language: `pt` of `pt-BR`."""
    return lang.partition("-")[0].lower()


def own_name(lang: str) -> str:
    """Return what speakers of a language call it; the tag in capitals where that is not known."""
    return _NAMES.get(primary(lang), lang.upper())


def direction(lang: str) -> Literal["rtl"] | None:
    """Return the direction in which a language (BCP 47) is written, where it is not from left to right."""
    written = next((part for part in lang.split("-")[1:] if len(part) == _SCRIPT_LETTERS and part.isalpha()), None)
    is_rtl = primary(lang) in _RIGHT_TO_LEFT if written is None else written.title() in _RIGHT_TO_LEFT_SCRIPTS
    return "rtl" if is_rtl else None


def keys_below_root(page: Mapping[str, Any]) -> list[str]:
    """Return the keys of the elements directly below a page's root."""
    return page["elements"][page["root"]].get("children") or []


def _is_version(site: Site, path: str) -> bool:
    match = _IN_FOLDER.fullmatch(path)
    return match is not None and match[2] in site.pages and primary(lang_of(site.pages[path])) == match[1]
