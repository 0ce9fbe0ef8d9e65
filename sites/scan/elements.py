"""Scan of single elements of HTML, SVG and XML: what they are, what they load and what they run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from lxml import etree

from sites.scan.frames import complaint_about_frame
from sites.scan.html_tokenizer import MAX_ATTRIBUTES_PER_TAG, Attribute, Tag
from sites.scan.references import Place, References, Use, parse_url
from sites.scan.rules import csp_hash

_DANGEROUS_TEXT = """
object embed applet frame frameset portal fencedframe noembed noframes xmp plaintext bgsound keygen isindex webview
controlledframe handler listener foreignobject annotation-xml
"""
_DANGEROUS = frozenset(_DANGEROUS_TEXT.split())
_HANDLER = re.compile(r"([\w-]+:)?on[a-z]", re.ASCII)
_REFUSED_ATTRIBUTES = frozenset({"srcdoc", "ping", "xml:base", "attributionsrc", "csp"})
_SAFE_REFERRER = frozenset(
    {"", "no-referrer", "same-origin", "strict-origin", "strict-origin-when-cross-origin", "origin"}
)
_SAFE_HTTP_EQUIV = frozenset({"content-type", "x-ua-compatible", "content-language", "imagetoolbar", "cleartype"})
_JS_TYPES = frozenset(
    {"", "module"}
    | {f"text/{name}" for name in ("javascript", "ecmascript", "jscript", "livescript", "x-javascript", "x-ecmascript")}
    | {f"text/javascript1.{minor}" for minor in range(6)}
    | {f"application/{name}" for name in ("javascript", "ecmascript", "x-javascript", "x-ecmascript")}
)
_DATA_TYPES = frozenset({"application/json", "application/ld+json"})
_HASH = r"(?:sha256-[A-Za-z0-9+/_-]{43}=|sha384-[A-Za-z0-9+/_-]{64}|sha512-[A-Za-z0-9+/_-]{86}==)"
_HASH_LIST = re.compile(rf"[\t\n\f\r ]*{_HASH}(?:[\t\n\f\r ]+{_HASH})*[\t\n\f\r ]*")
_CHARSET = re.compile(r"charset[\t\n\f\r ]*=[\t\n\f\r \"']*([^\t\n\f\r \"';]*)")
_SECRET_FIELDS_TEXT = """
current-password new-password one-time-code cc-name cc-given-name cc-additional-name cc-family-name cc-number cc-exp
cc-exp-month cc-exp-year cc-csc cc-type
"""
_SECRET_FIELDS = frozenset(_SECRET_FIELDS_TEXT.split())

_URL_ATTRIBUTES: dict[tuple[str, str], Use] = {
    ("a", "href"): "link",
    ("area", "href"): "link",
    ("a", "xlink:href"): "link",
    ("img", "src"): "image",
    ("img", "lowsrc"): "image",
    ("img", "dynsrc"): "image",
    ("input", "src"): "image",
    ("image", "src"): "image",
    ("video", "poster"): "image",
    ("source", "src"): "media",
    ("video", "src"): "media",
    ("audio", "src"): "media",
    ("track", "src"): "media",
    ("form", "action"): "form",
    ("html", "manifest"): "manifest",
}
_LINK_RELATIONS: dict[Use, str] = {
    "style": "stylesheet",
    "image": "icon apple-touch-icon apple-touch-icon-precomposed mask-icon apple-touch-startup-image",
    "manifest": "manifest",
    "script": "modulepreload",
    "connect": "preconnect dns-prefetch prefetch",
}
_PRELOADED: dict[Use, str] = {
    "style": "style",
    "script": "script worker",
    "image": "image",
    "font": "font",
    "media": "audio video track",
    "frame": "document embed object",
}
_LINK_USES = {relation: use for use, relations in _LINK_RELATIONS.items() for relation in relations.split()}
_PRELOAD_USES = {kind: use for use, kinds in _PRELOADED.items() for kind in kinds.split()}
_REFUSED_RELATIONS = frozenset({"import", "prerender", "serviceworker", "compression-dictionary", "expect"})


def check_element(tag: Tag, place: Place, references: References) -> None:
    """Check a start tag with its attributes and raw text."""
    if tag.name in _DANGEROUS:
        references.find("dangerous-element", place, f"<{tag.name}>")
    special = _SPECIAL.get(tag.name)
    if special is not None:
        special(tag, place, references)
    for name, value in tag.attributes:
        _check_attribute(tag, name, value, place, references)


def _check_attribute(tag: Tag, name: str, value: str, place: Place, references: References) -> None:
    if _HANDLER.match(name):
        references.find("event-handler", place, f"{name}={value}")
        references.notes.add_script(value.encode(errors="replace"))
    elif name in _REFUSED_ATTRIBUTES and (tag.name, name) != ("iframe", "srcdoc"):  # which is scanned as a page
        references.find("dangerous-attribute", place, f"{name}={value}")
    elif name == "style":
        references.notes.has_style_attributes = True
        references.check_css(value, place)
    elif name == "autocomplete" and _SECRET_FIELDS & set(value.lower().split()):
        references.check_secret_field(place, value)
    elif name == "referrerpolicy" and value.strip().lower() not in _SAFE_REFERRER:
        references.find("meta-referrer", place, value)
    else:
        _check_url_attribute(tag, name, value, place, references)


def _check_url_attribute(tag: Tag, name: str, value: str, place: Place, references: References) -> None:
    use = _URL_ATTRIBUTES.get((tag.name, name))
    if use is not None:
        references.check_url(value, use, place)
    elif name in ("srcset", "imagesrcset"):
        references.check_srcset(value, place)
    elif name == "formaction":
        references.check_url(value, "form", place)
    elif name == "background":
        references.check_url(value, "image", place)
    elif name in ("href", "xlink:href") and tag.name not in ("script", "link", "base"):
        _check_graphics_link(tag, value, place, references)
    elif tag.is_foreign and ("(" in value or "\\" in value):  # fill="url(…)" and its like
        references.check_css(f"{name}:{value}", place)


def _check_graphics_link(tag: Tag, value: str, place: Place, references: References) -> None:
    if tag.name in ("image", "feimage"):
        references.check_url(value, "image", place)
    elif value.strip() and not value.strip().startswith("#"):
        references.check_url(value, "image", place)
        if ":" in value.split("/")[0] or tag.name != "use":
            references.find("svg-active", place, f"<{tag.name} href={value}>")


def _check_script(tag: Tag, place: Place, references: References) -> None:
    text = tag.text or ""
    kind = (tag.get("type") or "").strip("\t\n\f\r ").lower()
    source = tag.get("src")
    if tag.is_foreign:
        references.find("svg-active", place, "<script>")
        source = tag.get("href") or tag.get("xlink:href")
    if kind in _DATA_TYPES:
        return
    if kind not in _JS_TYPES:
        references.find("unknown-script-type", place, kind)
    if source is not None:
        references.check_url(source, "script", place)
        is_pinned = _HASH_LIST.fullmatch(tag.get("integrity") or "") and tag.get("crossorigin") is not None
        if parse_url(source).kind == "external" and not is_pinned:
            references.find("script-integrity", place, source)
    if text.strip():
        references.check_js(text, Place(place.file, tag.text_line))
        if source is None:
            references.notes.script_hashes.add(csp_hash(text))


def _check_style(tag: Tag, place: Place, references: References) -> None:
    if tag.text:
        references.check_css(tag.text, Place(place.file, tag.text_line))
        references.notes.style_hashes.add(csp_hash(tag.text))


def _check_link(tag: Tag, place: Place, references: References) -> None:
    href = tag.get("href")
    relations = (tag.get("rel") or "").lower().split()
    for relation in relations:
        if relation in _REFUSED_RELATIONS:
            references.find("link-rel", place, relation)
    if href is None:
        return
    uses: list[Use] = [_LINK_USES[relation] for relation in relations if relation in _LINK_USES]
    if "preload" in relations:
        uses.append(_PRELOAD_USES.get((tag.get("as") or "").strip().lower(), "connect"))
    for use in uses or ["link"]:
        if use != "connect" or not references.is_known_host(href):  # preconnecting to an allowed host is harmless
            references.check_url(href, use, place)


def _check_meta(tag: Tag, place: Place, references: References) -> None:
    equivalent = (tag.get("http-equiv") or "").strip().lower()
    if equivalent and equivalent not in _SAFE_HTTP_EQUIV:
        references.find("meta-http-equiv", place, equivalent)
    _check_charset(tag, equivalent, place, references)
    if (tag.get("name") or "").strip().lower() == "referrer":
        policy = (tag.get("content") or "").strip().lower()
        if policy not in _SAFE_REFERRER:
            references.find("meta-referrer", place, policy)


def _check_charset(tag: Tag, equivalent: str, place: Place, references: References) -> None:
    """Refuse a charset in which the page's bytes read as other text where no header comes with them."""
    declared = tag.get("charset")
    if declared is None and equivalent == "content-type":
        match = _CHARSET.search((tag.get("content") or "").lower())
        declared = match[1] if match else None
    if declared is not None:
        references.check_charset(declared, place)


def _check_base(tag: Tag, place: Place, references: References) -> None:
    references.find("base-element", place, tag.get("href") or "")


def _check_iframe(tag: Tag, place: Place, references: References) -> None:
    if complaint := complaint_about_frame(tag):
        references.find("frame-loose", place, complaint)
        if source := tag.get("src"):
            references.check_url(source, "frame", place)


def _check_input(tag: Tag, place: Place, references: References) -> None:
    if (tag.get("type") or "").strip().lower() == "password":
        references.check_secret_field(place)


def _check_animation(tag: Tag, place: Place, references: References) -> None:
    name = (tag.get("attributename") or "").strip().lower()
    if name.endswith("href") or name.startswith("on") or name in ("src", "style", "action"):
        references.find("svg-active", place, f"<{tag.name} attributeName={name}>")


_SPECIAL = {
    "script": _check_script,
    "style": _check_style,
    "link": _check_link,
    "meta": _check_meta,
    "base": _check_base,
    "iframe": _check_iframe,
    "input": _check_input,
    "animate": _check_animation,
    "set": _check_animation,
    "animatemotion": _check_animation,
    "animatetransform": _check_animation,
}


# SVG and other XML files, which browsers show as documents of their own when opened alone (threat G4).

_DECLARED = re.compile(rb"<\?xml[^>]{0,200}?encoding\s{0,20}=\s{0,20}[\"']([^\"'>]{0,40})")
_DOCTYPE = re.compile(rb"<!(?:DOCTYPE|ENTITY|ATTLIST|NOTATION|ELEMENT)", re.IGNORECASE)
_HARMLESS_DOCTYPE = re.compile(rb"<!DOCTYPE\s+svg(\s+PUBLIC\s+\"-//W3C//DTD SVG [^\"]*\"\s+\"[^\"]*\")?\s*>")
_XHTML = "http://www.w3.org/1999/xhtml"
_SVG = "http://www.w3.org/2000/svg"
_MATHML = "http://www.w3.org/1998/Math/MathML"
_XLINK = "http://www.w3.org/1999/xlink"
_XML = "http://www.w3.org/XML/1998/namespace"
_PREFIXES = {_XLINK: "xlink:", _XML: "xml:"}
MAX_ELEMENTS = 30_000
_HEAD_BYTES = 1024


def check_svg(data: bytes, place: Place, references: References) -> None:
    """Check an SVG image: no scripts, handlers or foreign content, and nothing loaded from elsewhere."""
    root = _parse(data, place, references)
    if root is None:
        return
    for tag in _tags(root, place, references):
        if tag.name == "{xhtml}":
            references.find("svg-active", place.below(tag.line), "HTML inside SVG")
        else:
            check_element(tag, place.below(tag.line), references)


def check_xml(data: bytes, place: Place, references: References) -> None:
    """Check an XML file that is data, such as a site map: nothing in it may be shown as a page."""
    root = _parse(data, place, references)
    if root is None:
        return
    for element in root.iter("{*}*"):
        if etree.QName(element).namespace in (_XHTML, _SVG, _MATHML) and not _is_language_link(element):
            references.find("xml-active", place.below(_line_of(element)), str(element.tag))
            return


def _is_language_link(element: etree._Element) -> bool:
    """Whether an element is just a site map's link to a page's translation."""
    names = {str(name) for name in element.attrib}
    is_plain = element.tag == f"{{{_XHTML}}}link" and names <= {"rel", "hreflang", "href", "media", "type"}
    return is_plain and element.get("rel") == "alternate"


def _parse(data: bytes, place: Place, references: References) -> etree._Element | None:
    doctype = _DOCTYPE.search(data)
    if doctype and not (_HARMLESS_DOCTYPE.match(data, doctype.start()) and len(_DOCTYPE.findall(data)) == 1):
        references.find("svg-doctype", place.below(data.count(b"\n", 0, doctype.start()) + 1))
        return None
    declared = _DECLARED.search(data[:_HEAD_BYTES])
    if declared:
        references.check_charset(declared[1].decode("latin-1"), place)
    if data.count(b"<") > MAX_ELEMENTS * 2 or data.count(b"=") > MAX_ELEMENTS * 10:
        references.find("html-too-complex", place)
        return None
    parser = etree.XMLParser(
        encoding="utf-8", resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, recover=False
    )
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        references.find("xml-malformed", place.below(error.lineno or 1), error.msg or "")
        return None
    node = root.getprevious()
    while node is not None:
        if isinstance(node, etree._ProcessingInstruction) and (node.target or "").lower() == "xml-stylesheet":
            references.find("xml-active", place.below(_line_of(node)), "<?xml-stylesheet?>")
        node = node.getprevious()
    return root


def _tags(root: etree._Element, place: Place, references: References) -> Iterator[Tag]:
    for element in root.iter("{*}*"):
        name = etree.QName(element)
        line = _line_of(element)
        if name.namespace == _XHTML:
            yield Tag("{xhtml}", (), True, line)
            continue
        if len(element.attrib) > MAX_ATTRIBUTES_PER_TAG:
            references.find("html-too-complex", place.below(line))
            return
        attributes = tuple(Attribute(_name(str(key)), str(value)) for key, value in element.attrib.items())
        text = "".join(map(str, element.itertext())) if name.localname.lower() in ("script", "style") else None
        yield Tag(name.localname.lower(), attributes, True, line, text, place.line + line - 1)


def _line_of(node: Any) -> int:
    return int(node.sourceline or 1)


def _name(key: str) -> str:
    name = etree.QName(key)
    return _PREFIXES.get(name.namespace or "", "") + name.localname.lower()
