"""What a scan looks for and reports: rules by gate, the looks of secrets, findings, and the resulting CSP."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

from routing.policy.platform import Profile
from sites.scan.frames import SANDBOX

Gate = Literal["js_budget", "secrets", "csp", "allowlists"]

GATES: tuple[Gate, ...] = ("js_budget", "secrets", "csp", "allowlists")
"""The four policy gates, in the order in which findings are listed (H-081)."""


def describe_limits(profile: Profile) -> str:
    """Return what a release may not contain, in words for a model that writes one."""
    script = (
        f"at most {profile.js_bytes // 1024} KiB of script in all, which works where localStorage throws"
        if profile.js_bytes
        else "no script at all"
    )
    return (
        f"The publisher refuses everything else than this. Images: files of the site{_or_from(profile.image_hosts)}. "
        f"Forms send to the site{_or_from(profile.form_hosts)} or to a mailto: address. "
        f"Scripts: files of the site{_or_from(profile.script_hosts)} and inline <script>; {script}; "
        "no inline handlers (onclick), no eval, no workers. Style sheets, fonts, video and audio: files of the site. "
        f"{_frames_of(profile)} No <base>, no <meta http-equiv>."
    )


def _frames_of(profile: Profile) -> str:
    if not profile.frames:
        return "Other sites are linked to, never embedded: no frames."
    return (
        "Other sites are linked to. Embedded, after a click, are only pages at "
        f"{', '.join(profile.frames)}: in a page's spec by the prop `embed` and components that have it; in HTML by "
        f'<iframe name="x" title="…" sandbox="{SANDBOX}"></iframe> without src, and <a href="…" target="x">.'
    )


def _or_from(hosts: Iterable[str]) -> str:
    return "".join(f", or https://{host}" for host in hosts)


def digest_of_report(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a report without its verdict and digest."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, order=True)
class Finding:
    """A rule that is broken at one place of a release."""

    gate: Gate
    rule: str
    """Stable code of the rule; a key of `RULES`."""
    file: str
    """Path in the release; empty for the release as a whole."""
    line: int
    """Counted from 1; 0 where a line makes no sense."""
    message: str
    """What is wrong; quoted content is escaped, cut, and masked if it is a secret."""
    fix: str
    """What to do about it."""

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as JSON data."""
        return dict(vars(self))

    def __str__(self) -> str:
        place = f"{self.file}, line {self.line}" if self.line else self.file
        return f"{place}: {self.message}" if place else self.message


@dataclass(frozen=True)
class ScanReport:
    """The result of scanning one set of files under one profile."""

    digest: str
    """Of the files' manifest: the report holds for these bytes only (H-114)."""
    profile: str
    """Name of the publish profile."""
    findings: tuple[Finding, ...]
    csp: str
    """The Content-Security-Policy header value under which the release must be served."""
    js_bytes: int
    """Bytes of all JavaScript that a browser could run."""
    js_gzip_bytes: int
    """The same, compressed; 0 if there is far too much to be worth compressing."""

    @property
    def passed(self) -> bool:
        """Whether all gates passed."""
        return not self.findings

    @cached_property
    def report_digest(self) -> str:
        """SHA-256 of the whole report; an approval is bound to it."""
        return digest_of_report(self._content())

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return {**self._content(), "passed": self.passed, "report_digest": self.report_digest}

    @property
    def gates(self) -> dict[Gate, bool]:
        """Whether each of the four gates passed."""
        failed = {finding.gate for finding in self.findings}
        return {gate: gate not in failed for gate in GATES}

    def _content(self) -> dict[str, Any]:
        return {
            "digest": self.digest,
            "profile": self.profile,
            "csp": self.csp,
            "js_bytes": self.js_bytes,
            "js_gzip_bytes": self.js_gzip_bytes,
            "gates": self.gates,
            "findings": [finding.as_dict() for finding in self.findings],
        }


@dataclass(frozen=True)
class SecretRule:
    """The look of one kind of secret, as its issuer documents it.

    The pattern is tried only where a keyword occurs, as plain search is far faster.
    """

    kind: str
    label: str
    keywords: tuple[bytes, ...]
    """Every secret of the kind contains one of these; in lower case if `ignore_case`."""
    pattern: re.Pattern[bytes]
    """Begins at the keyword; its last group, or the whole match, is the secret."""
    ignore_case: bool = False
    min_entropy: float = 2.5
    """Bits per byte; anything below is a placeholder such as `sk-ant-xxxxxxxx`."""


def _rule(kind: str, label: str, keywords: bytes, pattern: bytes, min_entropy: float = 2.5) -> SecretRule:
    return SecretRule(kind, label, tuple(keywords.split()), re.compile(pattern), min_entropy=min_entropy)


_ASSIGNED_KEYWORDS = tuple(
    b"apikey api_key api-key secret token password passwd accesskey access_key access-key privatekey private_key "
    b"private-key credential".split()
)
_ASSIGNED = re.compile(
    rb"(?:api[_-]?key|secret|token|passwo?r?d|access[_-]?key|private[_-]?key|credential)[\w-]{0,20}+[\"']?\s{0,5}[:=]{1,2}>?"
    rb"\s{0,5}[\"'`]([A-Za-z0-9_+/=.~-]{20,200})[\"'`]",
    re.IGNORECASE,
)
_ENV_LINE = rb"(?:SECRET|TOKEN|PASSWORD|_KEY)=[\"']?([A-Za-z0-9_+/=.~-]{20,200})"
_OPENAI = rb"(?<![A-Za-z0-9])sk-(?:(?:proj|svcacct|admin|None)-[\w-]{20,200}|[A-Za-z0-9]{32,200})"
_AWS_SECRET = re.compile(
    rb"aws[\w-]{0,20}?(?:secret|key)[\w-]{0,20}+[\"']?\s{0,5}+[=:]\s{0,5}+[\"']?([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
    re.IGNORECASE,
)

SECRET_RULES: tuple[SecretRule, ...] = (
    _rule("anthropic", "an Anthropic key", b"sk-ant-", rb"sk-ant-[A-Za-z0-9_-]{16,}"),
    _rule("openai", "an OpenAI key", b"sk-", _OPENAI),
    _rule("aws-id", "an AWS access key id", b"AKIA ASIA", rb"(?<![A-Za-z0-9])A[KS]IA[A-Z2-7]{16}(?![A-Za-z0-9])"),
    SecretRule("aws-secret", "an AWS secret key", (b"aws",), _AWS_SECRET, ignore_case=True, min_entropy=3.5),
    _rule("github", "a GitHub token", b"ghp_ gho_ ghu_ ghs_ ghr_", rb"gh[pousr]_[A-Za-z0-9]{36,}"),
    _rule("github-fine", "a GitHub token", b"github_pat_", rb"github_pat_[A-Za-z0-9_]{50,}"),
    _rule("gitlab", "a GitLab token", b"glpat- gldt- glrt-", rb"gl(?:pat|dt|rt)-[\w-]{20,}"),
    _rule("stripe", "a Stripe key", b"sk_live_ rk_live_ sk_test_ rk_test_", rb"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    _rule("stripe-webhook", "a webhook signing secret", b"whsec_", rb"whsec_[A-Za-z0-9+/=_-]{24,}"),
    _rule("slack", "a Slack token", b"xoxb- xoxp- xoxa- xoxr- xoxs- xoxe- xoxo-", rb"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    _rule("slack-app", "a Slack app token", b"xapp-", rb"xapp-\d-[A-Za-z0-9-]{20,}"),
    _rule("slack-hook", "a Slack webhook", b"hooks.slack.com/", rb"hooks\.slack\.com/[a-z]{5,12}/[A-Za-z0-9/]{20,}"),
    _rule("google", "a Google API key", b"AIza", rb"AIza[\w-]{35}(?![\w-])"),
    _rule("google-oauth", "a Google OAuth secret", b"GOCSPX-", rb"GOCSPX-[\w-]{28}"),
    _rule("google-token", "a Google access token", b"ya29.", rb"ya29\.[\w-]{20,}"),
    _rule("private-key", "a private key", b"-----BEGIN", rb"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----", 0),
    _rule("putty-key", "a private key", b"PuTTY-User-Key-File-", rb"PuTTY-User-Key-File-\d", min_entropy=0),
    _rule("jwt", "a signed token (JWT)", b"eyJ", rb"(?<![\w-])eyJ[\w-]{8,400}+\.eyJ[\w-]{8,1600}\.[\w-]{16,}"),
    _rule("npm", "an npm token", b"npm_", rb"npm_[A-Za-z0-9]{36}"),
    _rule("pypi", "a PyPI token", b"pypi-AgE", rb"pypi-AgE[\w-]{50,}"),
    _rule("sendgrid", "a SendGrid key", b"SG.", rb"(?<!\w)SG\.[\w-]{16,32}\.[\w-]{16,64}"),
    _rule("twilio", "a Twilio key", b"SK", rb"(?<!\w)SK[0-9a-f]{32}(?!\w)"),
    _rule("mailgun", "a Mailgun key", b"key-", rb"(?<!\w)key-[0-9a-f]{32}(?!\w)"),
    _rule("mailchimp", "a Mailchimp key", b"-us", rb"(?<=[0-9a-f]{32})-us\d{1,2}(?!\w)", min_entropy=0),
    _rule("telegram", "a Telegram bot token", b":AA", rb"(?<=\d{8}):AA[\w-]{33}(?![\w-])"),
    _rule("discord-hook", "a Discord webhook", b"/api/webhooks/", rb"/api/webhooks/\d{10,}/[\w-]{40,}"),
    _rule("digitalocean", "a DigitalOcean token", b"dop_v1_ doo_v1_ dor_v1_", rb"do[opr]_v1_[0-9a-f]{64}"),
    _rule("huggingface", "a Hugging Face token", b"hf_", rb"(?<!\w)hf_[A-Za-z]{30,}"),
    _rule("shopify", "a Shopify token", b"shpat_ shpca_ shppa_ shpss_", rb"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    _rule("square", "a Square token", b"sq0atp- sq0csp-", rb"sq0(?:atp|csp)-[\w-]{22,43}"),
    _rule("atlassian", "an Atlassian token", b"ATATT3", rb"ATATT3[\w=-]{60,}"),
    _rule("databricks", "a Databricks token", b"dapi", rb"(?<!\w)dapi[0-9a-f]{32}"),
    _rule("vault", "a Vault token", b"hvs. hvb.", rb"(?<!\w)hv[sb]\.[\w-]{24,}"),
    _rule("azure-storage", "an Azure storage key", b"AccountKey=", rb"AccountKey=[A-Za-z0-9+/]{80,}={0,2}"),
    _rule("grafana", "a Grafana token", b"glsa_ glc_", rb"gl(?:sa|c)_[A-Za-z0-9_+/=]{32,}"),
    _rule("linear", "a Linear key", b"lin_api_", rb"lin_api_[A-Za-z0-9]{32,}"),
    _rule("figma", "a Figma token", b"figd_", rb"figd_[\w-]{36,}"),
    _rule("supabase", "a Supabase token", b"sbp_", rb"(?<!\w)sbp_[0-9a-f]{40}"),
    _rule("docker", "a container registry token", b"dckr_pat_ dckr_oat_", rb"dckr_[po]at_[\w-]{20,}"),
    _rule("replicate", "a Replicate token", b"r8_", rb"(?<!\w)r8_[A-Za-z0-9]{37,}"),
    _rule("groq", "a Groq key", b"gsk_", rb"(?<!\w)gsk_[A-Za-z0-9]{40,}"),
    _rule("perplexity", "a Perplexity key", b"pplx-", rb"(?<!\w)pplx-[A-Za-z0-9]{40,}"),
    _rule("xai", "an xAI key", b"xai-", rb"(?<!\w)xai-[A-Za-z0-9]{60,}"),
    _rule("notion", "a Notion token", b"ntn_", rb"(?<!\w)ntn_[A-Za-z0-9]{40,}"),
    _rule("postman", "a Postman key", b"PMAK-", rb"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    _rule("doppler", "a Doppler token", b"dp.", rb"(?<!\w)dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{40,}"),
    _rule("netlify", "a Netlify token", b"nfp_", rb"(?<!\w)nfp_[A-Za-z0-9]{36,}"),
    _rule("fly", "a Fly token", b"fo1_ FlyV1", rb"(?<!\w)(?:fo1_[\w-]{40,}|FlyV1 fm\d_[\w+/=,-]{40,})"),
    _rule("planetscale", "a PlanetScale token", b"pscale_", rb"pscale_(?:tkn|oauth|pw)_[\w.=-]{32,}"),
    _rule("sentry", "a Sentry token", b"sntrys_ sntryu_", rb"sntry[su]_[\w+/=-]{40,}"),
    _rule("newrelic", "a New Relic key", b"NRAK- NRII-", rb"NR(?:AK|II)-[\w-]{27,}"),
    _rule("terraform", "a Terraform token", b".atlasv1.", rb"(?<=[A-Za-z0-9]{14})\.atlasv1\.[\w=-]{60,}"),
    _rule("age", "an age secret key", b"AGE-SECRET-KEY-1", rb"AGE-SECRET-KEY-1[A-Z0-9]{58}"),
    _rule("rubygems", "a RubyGems key", b"rubygems_", rb"(?<!\w)rubygems_[0-9a-f]{48}"),
    _rule("tailscale", "a Tailscale key", b"tskey-", rb"tskey-[a-z]{2,10}-[\w-]{16,}"),
    _rule("mapbox", "a Mapbox secret token", b"sk.eyJ", rb"(?<!\w)sk\.eyJ[\w-]{20,}\.[\w-]{20,}"),
    _rule("brevo", "a Brevo key", b"xkeysib-", rb"xkeysib-[0-9a-f]{64}-[A-Za-z0-9]{16}"),
    _rule("airtable", "an Airtable token", b"pat", rb"(?<!\w)pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    _rule("bitbucket", "a Bitbucket token", b"ATBB", rb"(?<!\w)ATBB[A-Za-z0-9]{28,}"),
    _rule("cloudinary", "a Cloudinary URL", b"cloudinary://", rb"cloudinary://\d{8,}:[\w-]{20,}@", 0),
    _rule("env-line", "a secret that is written out", b"SECRET= TOKEN= PASSWORD= _KEY=", _ENV_LINE, 3.5),
    _rule(
        "url-password",
        "a password in a URL",
        b"://",
        rb"://[^\s:/@\"'<>?#]{0,64}:([^\s@/\"'<>?#]{3,128})@[\w.-]{1,253}",
        min_entropy=1.5,
    ),
    SecretRule(
        "assigned", "a secret that is written out", _ASSIGNED_KEYWORDS, _ASSIGNED, ignore_case=True, min_entropy=3.7
    ),
)


class Rule(NamedTuple):
    """The gate, message and advice of one rule."""

    gate: Gate
    message: str
    fix: str


_BY_GATE: dict[Gate, dict[str, tuple[str, str]]] = {
    "js_budget": {
        "js-raw-bytes": ("more JavaScript than the profile allows", "remove or shorten scripts"),
        "js-gzip-bytes": ("more compressed JavaScript than the profile allows", "remove or shorten scripts"),
        "script-not-in-release": (
            "a script that is not part of the release cannot be counted",
            "add the file or remove the reference",
        ),
        "data-script": ("JavaScript hidden in a data: or blob: URL", "put it in a .js file of the release"),
    },
    "csp": {
        # what a page must not contain, because no safe header could allow it
        "event-handler": ("inline event handler", "give the element an id, and in a .js file a listener"),
        "script-url": ("URL that runs code", "use an ordinary link, or a button with a listener in a .js file"),
        "eval-like": ("text that is run as code", "write the code out; nothing may be compiled at run time"),
        "computed-navigation": (
            "navigation to an address, or by a name, that is put together",
            "begin it with /, ./, ? or #; write names out",
        ),
        "worker": ("worker or service worker", "do without; workers outlive the page that was approved"),
        "unknown-script-type": ("script of an unknown type", "use text/javascript, module, or application/json"),
        "base-element": ("<base> moves every relative URL", "write the URLs out"),
        "meta-http-equiv": ("<meta> that acts as a header", "remove it; headers are set by the publisher"),
        "meta-charset": ("charset in which the bytes could read as another text", "declare utf-8"),
        "meta-referrer": ("<meta> that weakens the referrer policy", "remove it"),
        "dangerous-element": ("element that loads or hides active content", "remove it"),
        "dangerous-attribute": ("attribute that loads or reports elsewhere", "remove it"),
        "link-rel": ("kind of <link> that is not allowed", "remove it"),
        "html-ambiguous": ("markup that browsers may read in two ways", "close every element where it was opened"),
        "html-too-complex": ("more markup than can be checked", "split the page or simplify it"),
        "not-utf8": ("text that is not plain UTF-8", "save the file as UTF-8 without NUL characters"),
        "svg-active": ("active content in an SVG image", "export the image without scripts, links and foreign content"),
        "svg-doctype": ("document type or entity in an SVG or XML file", "remove the DOCTYPE"),
        "xml-malformed": ("SVG or XML that cannot be read", "export the file again"),
        "xml-active": ("XML that a browser would show as a page or transform", "use HTML"),
        "css-active": ("CSS that runs code or computes a URL", "remove the declaration, or write the URL out"),
        "bidi-control": ("control character that shows a script in another order than it runs", "remove the character"),
        "pdf-active": ("PDF that runs code or starts a program", "export the document without actions"),
        "too-many-inline": ("more inline scripts and styles than a header can list", "move them to files"),
    },
    "allowlists": {
        "script-host": ("script from a host that the profile does not allow", "put the script in the release"),
        "script-integrity": (
            "external script without integrity and crossorigin",
            'add integrity="sha384-…" and crossorigin="anonymous"',
        ),
        "style-host": ("style sheet from another host", "put the style sheet in the release"),
        "font-host": ("font from another host", "put the font in the release"),
        "image-host": ("image from a host that the profile does not allow", "put the image in the release"),
        "media-host": ("audio or video from another host", "put the file in the release"),
        "form-host": ("form that sends to a host that the profile does not allow", "send it to this site"),
        "frame-host": ("embedded page that the profile does not allow", "link to it instead"),
        "frame-loose": (
            "frame that loads or may do more than a visitor asks for",
            "give it a title, a name and a sandbox, no src, and a link whose target is its name",
        ),
        "too-many-frames": ("more embedded pages than a header can list", "link to some instead"),
        "connect-host": ("connection to another host", "remove it, or read the data at build time"),
        "manifest-host": ("manifest from another host", "put the manifest in the release"),
        "script-navigation": ("script that leads visitors to another host", "use an ordinary link"),
        "peer-connection": ("direct connection to other machines, which no header can stop", "remove the connection"),
        "insecure-url": ("unencrypted URL of something the page loads", "use https"),
        "deceptive-url": ("URL that does not lead where it seems to", "write the plain host name"),
        "data-url": ("data: URL of a kind that is not allowed here", "put the data in a file of the release"),
        "password-field": ("secret asked for on a site that sends forms nowhere", "remove the field"),
        "host-config-file": (
            "file that configures a web host or proves its ownership",
            "remove it; the publisher sets headers",
        ),
        "planted-file": ("configuration that a tool would obey", "remove it"),
        "package-config": (
            "package configuration that runs a script, or loads code from an unusual place",
            "leave the file out of what is published",
        ),
        "package-code": ("installed packages", "leave node_modules out; a build installs them from package.json"),
        "not-built": (
            "the site has a build script, and no directory holds its pages",
            'build it into dist/, or name the directory that is served in package.json: "pointsman": {"public": "."}',
        ),
        "hidden-file": ("hidden file", "remove it; only .well-known/ may be published"),
        "file-type": ("kind of file that is not served", "remove it or convert it"),
        "type-mismatch": ("file whose bytes are not what its name says", "give it its true name"),
        "too-many-files": ("more files than the profile allows", "remove files"),
    },
    "secrets": {
        "known-key": ("a key of this installation", "remove it and replace the key: it must count as known"),
        "too-much-encoding": ("more that is encoded or looks like a key than can be checked", "publish plain text"),
    },
}
_UNFINISHED = ("not all files were checked, there are too many findings", "fix the others first")
RULES: dict[str, Rule] = {
    **{name: Rule(gate, *words) for gate, rules in _BY_GATE.items() for name, words in rules.items()},
    **{f"unfinished-{gate}": Rule(gate, *_UNFINISHED) for gate in GATES},  # a scan that ended early: no gate may pass
    **{
        f"secret-{rule.kind}": Rule("secrets", f"looks like {rule.label}", "remove it, and revoke it at its issuer")
        for rule in SECRET_RULES
    },
}


_MAX_PER_RULE_AND_FILE = 20
_MAX_TOTAL = 5_000
_SHOWN_CHARS = 80


def show(text: str) -> str:
    """Return hostile text that is safe to print: escaped to ASCII and cut."""
    return ascii(text[:_SHOWN_CHARS]) + ("…" if len(text) > _SHOWN_CHARS else "")


class TooManyFindingsError(Exception):
    """The scan ends early because of too many findings; never leaves the scan."""


@dataclass
class Notes:
    """What a scan gathers: findings, JavaScript, and what the CSP must allow."""

    findings: set[Finding] = field(default_factory=set)
    scripts: dict[str, bytes] = field(default_factory=dict)
    """Distinct pieces of JavaScript by digest; the same code on every page counts once."""
    script_hashes: set[str] = field(default_factory=set)
    style_hashes: set[str] = field(default_factory=set)
    frames: set[str] = field(default_factory=set)
    """Source expressions of the pages that a visitor may have shown in a frame."""
    has_style_attributes: bool = False
    has_data_images: bool = False
    has_data_fonts: bool = False
    _directory: str = ""
    _total: int = 0
    _counts: dict[tuple[str, str], int] = field(default_factory=dict)

    @contextmanager
    def below(self, directory: str) -> Iterator[None]:
        """Report files as lying below a directory of the release; empty for none."""
        self._directory = f"{directory}/" if directory else ""
        try:
            yield
        finally:
            self._directory = ""

    def find(self, rule: str, file: str, line: int, *, detail: str = "") -> None:
        """Record a finding.

        Args:
            rule: a key of `RULES`.
            file: the path in the release, or below the directory of `below`; empty for the release as a whole.
            line: counted from 1.
            detail: the offending text; it is escaped and cut.
        """
        file = f"{self._directory}{file}" if file else ""
        count = self._counts[rule, file] = self._counts.get((rule, file), 0) + 1
        self._total += 1
        if self._total > _MAX_TOTAL:
            raise TooManyFindingsError
        if count > _MAX_PER_RULE_AND_FILE:
            return
        gate, text, fix = RULES[rule]
        self.findings.add(Finding(gate, rule, file, line, f"{text}: {show(detail)}" if detail else text, fix))

    def add_script(self, source: bytes) -> bool:
        """Record a piece of JavaScript; return whether it is new."""
        digest = hashlib.sha256(source).hexdigest()
        is_new = digest not in self.scripts
        self.scripts[digest] = source
        return is_new

    def add(self, other: Notes) -> None:
        """Take over what a clean file needs."""
        self.scripts |= other.scripts
        self.script_hashes |= other.script_hashes
        self.style_hashes |= other.style_hashes
        self.frames |= other.frames
        self.has_style_attributes |= other.has_style_attributes
        self.has_data_images |= other.has_data_images
        self.has_data_fonts |= other.has_data_fonts

    def give_up(self) -> None:
        """Fail all gates, because the scan ends early."""
        self._total = 0
        for gate in GATES:
            self.find(f"unfinished-{gate}", "", 0)

    def sorted_findings(self) -> tuple[Finding, ...]:
        """Return the findings by gate, file and line."""
        return tuple(
            sorted(self.findings, key=lambda one: (GATES.index(one.gate), one.file, one.line, one.rule, one.message))
        )


def csp_hash(text: str) -> str:
    """Return the hash source of an inline script or style, over the exact text between its tags."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


MAX_INLINE = 64
"""Inline scripts and styles together, so that the header stays below the 8 KiB that servers accept."""


def build_csp(profile: Profile, notes: Notes) -> str:
    """Return the Content-Security-Policy of a release.

    It never holds `unsafe-inline`, `unsafe-eval`, a wildcard or `data:` for scripts. Style attributes are allowed as a
    whole if there are any: their text was checked, and they run nothing.
    """
    script = ["'self'", *sorted(notes.script_hashes), *_hosts(profile.script_hosts)]
    image = ["'self'", *(["data:"] if notes.has_data_images else []), *_hosts(profile.image_hosts)]
    directives = {
        "default-src": ["'none'"],
        "script-src": script,
        "style-src": ["'self'", *sorted(notes.style_hashes)],
        "style-src-attr": ["'unsafe-inline'" if notes.has_style_attributes else "'none'"],
        "img-src": image,
        "font-src": ["'self'", *(["data:"] if notes.has_data_fonts else [])],
        "media-src": ["'self'"],
        "connect-src": ["'self'"],
        "manifest-src": ["'self'"],
        "form-action": ["'self'", "mailto:", *_hosts(profile.form_hosts)],
        "base-uri": ["'none'"],
        "object-src": ["'none'"],
        "frame-src": sorted(notes.frames) or ["'none'"],
        "frame-ancestors": ["'none'"],
        "worker-src": ["'none'"],
    }
    return "; ".join(f"{name} {' '.join(sources)}" for name, sources in directives.items())


def _hosts(hosts: Iterable[str]) -> list[str]:
    return [f"https://{host}" for host in sorted(hosts)]
