"""The rules of the scan as a table: which gate each belongs to, what it says, what to do about it."""

from __future__ import annotations

from typing import NamedTuple

from sandbox.scan.report import GATES, Gate
from sandbox.scan.secret_rules import SECRET_RULES


class Rule(NamedTuple):
    """One rule."""

    gate: Gate
    message: str
    fix: str


RULES: dict[str, Rule] = {
    # a scan that found so much that it ended early: no gate may then pass
    **{
        f"unfinished-{gate}": Rule(
            gate, "not all files were checked, there are too many findings", "fix the others first"
        )
        for gate in GATES
    },
    # JS budget
    "js-raw-bytes": Rule("js_budget", "more JavaScript than the profile allows", "remove or shorten scripts"),
    "js-gzip-bytes": Rule(
        "js_budget", "more compressed JavaScript than the profile allows", "remove or shorten scripts"
    ),
    "script-not-in-release": Rule(
        "js_budget",
        "a script that is not part of the release cannot be counted",
        "add the file or remove the reference",
    ),
    "data-script": Rule(
        "js_budget", "JavaScript hidden in a data: or blob: URL", "put it in a .js file of the release"
    ),
    # CSP: what a page must not contain, because no safe header could allow it
    "event-handler": Rule("csp", "inline event handler", "attach the listener in a .js file with addEventListener"),
    "script-url": Rule("csp", "URL that runs code", "use an ordinary link, or a button with a listener in a .js file"),
    "eval-like": Rule("csp", "text that is run as code", "write the code out; nothing may be compiled at run time"),
    "worker": Rule("csp", "worker or service worker", "do without; workers outlive the page that was approved"),
    "unknown-script-type": Rule("csp", "script of an unknown type", "use text/javascript, module, or application/json"),
    "base-element": Rule("csp", "<base> moves every relative URL", "write the URLs out"),
    "meta-http-equiv": Rule("csp", "<meta> that acts as a header", "remove it; headers are set by the publisher"),
    "meta-charset": Rule("csp", "charset in which the bytes could read as another text", "declare utf-8"),
    "meta-referrer": Rule("csp", "<meta> that weakens the referrer policy", "remove it"),
    "dangerous-element": Rule("csp", "element that loads or hides active content", "remove it"),
    "dangerous-attribute": Rule("csp", "attribute that loads or reports elsewhere", "remove it"),
    "link-rel": Rule("csp", "kind of <link> that is not allowed", "remove it"),
    "html-ambiguous": Rule(
        "csp", "markup that browsers may read in two ways", "close every element where it was opened"
    ),
    "html-too-complex": Rule("csp", "more markup than can be checked", "split the page or simplify it"),
    "not-utf8": Rule("csp", "text that is not plain UTF-8", "save the file as UTF-8 without NUL characters"),
    "svg-active": Rule(
        "csp", "active content in an SVG image", "export the image without scripts, links and foreign content"
    ),
    "svg-doctype": Rule("csp", "document type or entity in an SVG or XML file", "remove the DOCTYPE"),
    "xml-malformed": Rule("csp", "SVG or XML that cannot be read", "export the file again"),
    "xml-active": Rule("csp", "XML that a browser would show as a page or transform", "use HTML"),
    "css-active": Rule("csp", "CSS that runs code or computes a URL", "remove the declaration, or write the URL out"),
    "bidi-control": Rule(
        "csp", "control character that shows a script in another order than it runs", "remove the character"
    ),
    "pdf-active": Rule("csp", "PDF that runs code or starts a program", "export the document without actions"),
    "too-many-inline": Rule("csp", "more inline scripts and styles than a header can list", "move them to files"),
    # allowlists
    "script-host": Rule(
        "allowlists", "script from a host that the profile does not allow", "put the script in the release"
    ),
    "script-integrity": Rule(
        "allowlists",
        "external script without integrity and crossorigin",
        'add integrity="sha384-…" and crossorigin="anonymous"',
    ),
    "style-host": Rule("allowlists", "style sheet from another host", "put the style sheet in the release"),
    "font-host": Rule("allowlists", "font from another host", "put the font in the release"),
    "image-host": Rule(
        "allowlists", "image from a host that the profile does not allow", "put the image in the release"
    ),
    "media-host": Rule("allowlists", "audio or video from another host", "put the file in the release"),
    "form-host": Rule(
        "allowlists", "form that sends to a host that the profile does not allow", "send it to this site"
    ),
    "frame-host": Rule("allowlists", "embedded page", "link to it instead"),
    "connect-host": Rule("allowlists", "connection to another host", "remove it, or read the data at build time"),
    "manifest-host": Rule("allowlists", "manifest from another host", "put the manifest in the release"),
    "script-navigation": Rule("allowlists", "script that leads visitors to another host", "use an ordinary link"),
    "peer-connection": Rule(
        "allowlists", "direct connection to other machines, which no header can stop", "remove the connection"
    ),
    "insecure-url": Rule("allowlists", "unencrypted URL of something the page loads", "use https"),
    "deceptive-url": Rule("allowlists", "URL that does not lead where it seems to", "write the plain host name"),
    "data-url": Rule(
        "allowlists", "data: URL of a kind that is not allowed here", "put the data in a file of the release"
    ),
    "password-field": Rule("allowlists", "secret asked for on a site that sends forms nowhere", "remove the field"),
    "host-config-file": Rule(
        "allowlists",
        "file that configures a web host or proves its ownership",
        "remove it; the publisher sets headers",
    ),
    "planted-file": Rule("allowlists", "configuration that a tool would obey", "remove it"),
    "package-config": Rule(
        "allowlists",
        "package configuration that runs a script, or loads code from an unusual place",
        "leave the file out of what is published",
    ),
    "package-code": Rule(
        "allowlists", "installed packages", "leave node_modules out; a build installs them from package.json"
    ),
    "not-built": Rule(
        "allowlists",
        "the site has a build script, and no directory holds its pages",
        'build it into dist/, or name the directory that is served in package.json: "pointsman": {"public": "."}',
    ),
    "hidden-file": Rule("allowlists", "hidden file", "remove it; only .well-known/ may be published"),
    "file-type": Rule("allowlists", "kind of file that is not served", "remove it or convert it"),
    "type-mismatch": Rule("allowlists", "file whose bytes are not what its name says", "give it its true name"),
    "too-many-files": Rule("allowlists", "more files than the profile allows", "remove files"),
    # secrets
    "known-key": Rule("secrets", "a key of this installation", "remove it and replace the key: it must count as known"),
    "too-much-encoding": Rule(
        "secrets", "more that is encoded or looks like a key than can be checked", "publish plain text"
    ),
    **{
        f"secret-{rule.kind}": Rule("secrets", f"looks like {rule.label}", "remove it, and revoke it at its issuer")
        for rule in SECRET_RULES
    },
}
