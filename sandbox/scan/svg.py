"""Judges SVG images and other XML files, which browsers show as documents when they are opened alone (threat G4)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from lxml import etree

from sandbox.scan.elements import check_element
from sandbox.scan.markup import MAX_ATTRIBUTES_PER_TAG, Attribute, Tag
from sandbox.scan.references import Place, References

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
    """Judge an SVG image: no scripts, no handlers, no foreign content, nothing loaded from elsewhere."""
    root = _parse(data, place, references)
    if root is None:
        return
    for tag in _tags(root, place, references):
        if tag.name == "{xhtml}":
            references.find("svg-active", place.below(tag.line), "HTML inside SVG")
        else:
            check_element(tag, place.below(tag.line), references)


def check_xml(data: bytes, place: Place, references: References) -> None:
    """Judge an XML file that is data, such as a site map: nothing in it may be shown as a page."""
    root = _parse(data, place, references)
    if root is None:
        return
    for element in root.iter("{*}*"):
        if etree.QName(element).namespace in (_XHTML, _SVG, _MATHML) and not _is_language_link(element):
            references.find("xml-active", place.below(_line_of(element)), str(element.tag))
            return


def _is_language_link(element: etree._Element) -> bool:
    """Return whether an element is what site maps use to name a page's translations, and nothing else."""
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
            yield Tag("{xhtml}", 0, (), True, line)
            continue
        if len(element.attrib) > MAX_ATTRIBUTES_PER_TAG:
            references.find("html-too-complex", place.below(line))
            return
        attributes = tuple(Attribute(_name(str(key)), str(value), 0) for key, value in element.attrib.items())
        text = "".join(map(str, element.itertext())) if name.localname.lower() in ("script", "style") else None
        yield Tag(name.localname.lower(), 0, attributes, True, line, text, place.line + line - 1)


def _line_of(node: Any) -> int:
    return int(node.sourceline or 1)


def _name(key: str) -> str:
    name = etree.QName(key)
    return _PREFIXES.get(name.namespace or "", "") + name.localname.lower()
