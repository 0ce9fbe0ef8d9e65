from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import pytest
from pydantic import ValidationError

from routing.policy.platform import Profile, platform_policy
from sites.content_store import Den
from sites.scan.engine import scan
from sites.scan.rules import GATES, RULES, ScanReport

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
    assert [(gate.gate, gate.passed) for gate in result.gates] == [(gate, True) for gate in GATES]


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
    assert [one.gate for one in result.gates if not one.passed] == [gate]
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


@pytest.mark.threat("G1", "G2", "G3", "G4", "G6", "G8", "G9", "G12")
@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("<script type=speculationrules>{}</script>", "unknown-script-type"),
        ("<script type=importmap>{}</script>", "unknown-script-type"),
        ("<p ONLOAD=x>", "event-handler"),
        ("<p/onload\x0c=x>", "event-handler"),
        ("<p a='x'onload=x>", "event-handler"),
        ("<svg onbegin=x>", "event-handler"),
        ("<body><body onpageshow=x>", "event-handler"),
        ("<html><html onfocus=x>", "event-handler"),
        ("<a href='java&#9;script:x'>", "script-url"),
        ("<a href='&#1;java&NewLine;script&colon;x'>", "script-url"),
        ("<a href=' JaVaScRiPt:x'>", "script-url"),
        ("<a href=vbscript:x>", "script-url"),
        ("<a href='data:text/html,<script>x</script>'>", "script-url"),
        ("<a href=blob:x>", "script-url"),
        ("<form action=javascript:x>", "script-url"),
        ("<button formaction=javascript:x>", "script-url"),
        ("<svg><a xlink:href=javascript:x>", "script-url"),
        ("<iframe src=x></iframe>", "frame-host"),
        ("<iframe srcdoc='<p>'></iframe>", "dangerous-attribute"),
        ("<a ping=//evil.example href=x>", "dangerous-attribute"),
        ("<object data=x>", "dangerous-element"),
        ("<embed src=x>", "dangerous-element"),
        ("<frameset onload=x><frame src=x>", "dangerous-element"),
        ("<portal src=x>", "dangerous-element"),
        ("<plaintext>", "dangerous-element"),
        ("<link rel=import href=x>", "link-rel"),
        ("<link rel='stylesheet prerender' href=x.css>", "link-rel"),
        ("<link rel=preload as=image href=//evil.example/x>", "image-host"),
        ("<link rel=manifest href=//evil.example/x>", "manifest-host"),
        ("<link rel=preconnect href=//evil.example>", "connect-host"),
        ("<link rel='shortcut icon' href=//evil.example/x.ico>", "image-host"),
        ("<base href=//evil.example>", "base-element"),
        ("<meta http-equiv=refresh content='0;url=//evil.example'>", "meta-http-equiv"),
        ("<meta http-equiv=Set-Cookie content=x>", "meta-http-equiv"),
        ("<meta http-equiv=Content-Security-Policy content=x>", "meta-http-equiv"),
        ("<meta name=referrer content=unsafe-url>", "meta-referrer"),
        ("<a referrerpolicy=unsafe-url href=x>", "meta-referrer"),
        ("<svg><animate attributeName=href to=javascript:x>", "svg-active"),
        ("<svg><set attributeName=xlink:href to=javascript:x>", "svg-active"),
        ("<svg><use href='data:image/svg+xml,<svg/>'>", "svg-active"),
        ("<svg><use href=//evil.example/a.svg#b>", "image-host"),
        ("<svg><rect fill='url(//evil.example/a.svg#b)'>", "image-host"),
        ("<svg><foreignObject><p>", "dangerous-element"),
        ('<img src=\'data:image/svg+xml,<svg xmlns="http://www.w3.org/2000/svg" onload="x"/>\'>', "event-handler"),
        ("<img src='data:text/html,x'>", "data-url"),
        ('<noscript><p title="</noscript><img src=x onerror=y>">', "event-handler"),
        ("<noscript><img src=//evil.example/x></noscript>", "image-host"),
        ("<svg><style><img src=x onerror=y></style></svg>", "html-ambiguous"),
        ("<svg a=b/><style><a title='</style><img onerror=x>'></style>", "html-ambiguous"),
        ("<svg><![CDATA[><img src=x onerror=y>]]></svg>", "html-ambiguous"),
        ("<math><mtext><table><mglyph><style><img onerror=x>", "html-ambiguous"),
        ("<svg></p><style><a title='</style><img onerror=x>'></style>", "html-ambiguous"),
        ("<svg><desc></svg><style>", "html-ambiguous"),
        ("<select><style></select><img onerror=x><style></style>", "html-ambiguous"),
        ("<template><col><style></template><img onerror=x><style></style>", "html-ambiguous"),
        ("<title>x<img onerror=y>", "html-ambiguous"),
        ("<style></ſtyle></style><p onclick=x>", "event-handler"),
        ("<script></ſcript><!--</script><p onclick=x>", "event-handler"),
        ("<!--><p onclick=x>-->", "event-handler"),
        ("<!-- --!><p onclick=x>", "event-handler"),
        ("<!DOCTYPE html PUBLIC '><p onclick=x>'>", "event-handler"),
        ("<script><!--<script></script>--></script><p onclick=x>", "event-handler"),
        ("<template><p onclick=x></template>", "event-handler"),
        ("<form action=//evil.example>", "form-host"),
        ("<form action=tel:1>", "form-host"),
        ("<button formaction=//evil.example>", "form-host"),
        ("<input type=PassWord>", "password-field"),
        ("<script src=//evil.example/x.js></script>", "script-host"),
        ("<script src=https://cdn.example/x.js></script>", "script-integrity"),
        (f"<script src=https://cdn.example/x.js integrity={SHA384}></script>", "script-integrity"),
        ("<script src=http://cdn.example/x.js></script>", "insecure-url"),
        ("<script src=https://cdn.example.evil.example/x.js></script>", "script-host"),
        ("<script src=https://cdn.example@evil.example/x.js></script>", "deceptive-url"),
        ("<script src='https://evil.example\\@cdn.example/x.js'></script>", "script-host"),
        ("<script src='/\\evil.example/x.js'></script>", "script-host"),
        ("<script src='/\t/evil.example/x.js'></script>", "script-host"),
        ("<script src='https:evil.example/x.js'></script>", "deceptive-url"),
        ("<script src='https:///evil.example/x.js'></script>", "deceptive-url"),
        ("<link rel=stylesheet href=//cdn.example/a.css>", "style-host"),
        ("<link rel='&#115;tylesheet' href=//evil.example/a.css>", "style-host"),
        ("<img src=//1.2.3.4/x>", "deceptive-url"),
        ("<img src=//0x7f.1/x>", "deceptive-url"),
        ("<img src='//[::1]/x'>", "deceptive-url"),
        ("<img src=//img.example:8443/x>", "deceptive-url"),
        ("<img srcset='data:image/png;base64,xx 1x, //evil.example/a 2x'>", "image-host"),
        ("<video poster=//evil.example/x>", "image-host"),
        ("<video src=//evil.example/x>", "media-host"),
        ("<td background=//evil.example/x>", "image-host"),
        ("<a href='https://аpple.com/'>", "deceptive-url"),
        ("<a href='https://bank.example@evil.example/'>", "deceptive-url"),
        ("<p style='background:u\\72l(//evil.example/x)'>", "image-host"),
        ("<p style='behavior:url(x)'>", "css-active"),
        ("<style>@import '//evil.example/a'</style>", "style-host"),
        (b"<p>\xff", "not-utf8"),
        ("<p>".encode("utf-16"), "not-utf8"),
        (b"<scr\0ipt>", "not-utf8"),
        ("<a " + "a " * 301 + ">", "html-too-complex"),
    ],
)
def test_hostile_markup_is_refused_by_its_rule(body: str | bytes, rule: str) -> None:
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


@pytest.mark.threat("G7")
@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("eval(x)", "eval-like"),
        ("eval/**/ (x)", "eval-like"),
        ("(0,eval)(x)", "eval-like"),
        ("window['eval'](x)", "eval-like"),
        ("\\u0065val(x)", "eval-like"),
        ("new Function('x')", "eval-like"),
        ("[].constructor.constructor('x')()", "eval-like"),
        ("setTimeout('x', 1)", "eval-like"),
        ("document.write(x)", "eval-like"),
        ("WebAssembly.instantiate(x)", "eval-like"),
        ("import('data:text/javascript,x')", "data-script"),
        ("new Worker('x.js')", "worker"),
        ("navigator.serviceWorker.register('x')", "worker"),
        ("importScripts('x')", "worker"),
        ("fetch('https://evil.example/')", "connect-host"),
        ("import x from '//evil.example/x.js'", "connect-host"),
        ("r.open('GET', 'https://evil.example/')", "connect-host"),
        ("new WebSocket(`wss://evil.example/`)", "connect-host"),
    ],
)
def test_constructs_that_the_header_would_stop_are_named(source: str, rule: str) -> None:
    assert rule in rules({"a.js": source.encode()})
    assert rule in page(f"<script>{source}</script>")


@pytest.mark.parametrize(
    "source",
    ["function f(){}", "medieval(x)", "setTimeout(f, 1)", "fetch('/x')", "a.evaluate(x)", "import a from './a.js'"],
)
def test_ordinary_javascript_passes(source: str) -> None:
    assert rules({"a.js": source.encode()}) == set()


@pytest.mark.threat("D2", "G8", "G11")
@pytest.mark.parametrize(
    ("name", "data", "rule"),
    [
        ("_headers", b"/*", "host-config-file"),
        ("sub/_Redirects", b"/*", "host-config-file"),
        ("netlify.toml", b"", "host-config-file"),
        (".htaccess", b"", "host-config-file"),
        (".claude/settings.json", b"{}", "planted-file"),
        (".hidden", b"", "hidden-file"),
        ("a.exe", b"MZ", "file-type"),
        ("a.wasm", b"\0asm", "file-type"),
        ("a.xhtml", b"<html/>", "file-type"),
        ("noextension", b"x", "file-type"),
        ("a.jpg", b"<html><script>x</script>", "type-mismatch"),
        ("a.png", b"GIF89a", "type-mismatch"),
        ("a.txt", b"\n <!DOCTYPE html>", "type-mismatch"),
        ("a.json", b"<script>x</script>", "type-mismatch"),
        ("a.html", b"%PDF-1.4", "type-mismatch"),
        ("a.svg", b"<!DOCTYPE svg [<!ENTITY a 'b'>]><svg>&a;</svg>", "svg-doctype"),
        ("a.svg", b"<!DOCTYPE svg SYSTEM 'http://evil.example/x'><svg/>", "svg-doctype"),
        ("a.svg", b"<svg><script/></svg>", "svg-active"),
        ("a.svg", b"<s:svg xmlns:s='http://www.w3.org/2000/svg'><s:script>x</s:script></s:svg>", "svg-active"),
        ("a.svg", b"<svg><x xmlns='http://www.w3.org/1999/xhtml'/></svg>", "svg-active"),
        ("a.svg", b"<svg><foreignObject/></svg>", "dangerous-element"),
        ("a.svg", b"<svg ONLOAD='x'/>", "event-handler"),
        ("a.svg", b"<svg><g", "xml-malformed"),
        ("a.svg", b"<?xml-stylesheet href='x'?><svg/>", "xml-active"),
        ("a.svg", b"<svg><image href='//evil.example/a'/></svg>", "image-host"),
        ("a.svg", b"<svg><a xmlns:x='http://www.w3.org/1999/xlink' x:href='javascript:x'/></svg>", "script-url"),
        ("a.xml", b"<html xmlns='http://www.w3.org/1999/xhtml'><script/></html>", "xml-active"),
        ("a.xml", b"<?xml-stylesheet type='text/xsl' href='x'?><a/>", "xml-active"),
        ("a.css", b"@import url(//evil.example/a.css);", "style-host"),
        ("a.css", b"@font-face{src:url(https://evil.example/f.woff)}", "font-host"),
    ],
)
def test_hostile_files_are_refused_by_their_rule(name: str, data: bytes, rule: str) -> None:
    assert rule in rules({name: data})


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
    manifest = Den(tmp_path).put_tree(CLEAN)
    assert report(CLEAN).digest == manifest.digest
    assert report({**CLEAN, "data.json": b"[]"}).digest != manifest.digest
    assert report({**CLEAN, "data.json": b"[]"}).report_digest != report(CLEAN).report_digest


def test_a_scan_that_finds_too_much_closes_every_gate() -> None:
    files = {f"{number}.html": b"<p onclick=x>" * 1000 for number in range(6)}
    result = report(files)
    assert not any(gate.passed for gate in result.gates)
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
