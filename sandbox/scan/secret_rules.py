"""What keys and tokens look like, by issuer.

Each rule has keywords, which are looked for first at the speed of memory, and a pattern, which is tried only where a
keyword stands. The patterns follow the formats that the issuers document.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class SecretRule:
    """The look of one kind of secret."""

    kind: str
    label: str
    keywords: tuple[bytes, ...]
    """At least one of these stands in every secret of the kind; in lower case if `ignore_case`."""
    pattern: re.Pattern[bytes]
    """Begins where the keyword begins; its last group, or all of it, is the secret."""
    ignore_case: bool = False
    min_entropy: float = 2.5
    """Bits per byte: less is a placeholder such as `sk-ant-xxxxxxxx`."""


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
        "url-password", "a password in a URL", b"://",
        rb"://[^\s:/@\"'<>?#]{0,64}:([^\s@/\"'<>?#]{3,128})@[\w.-]{1,253}", min_entropy=1.5,
    ),
    SecretRule(
        "assigned", "a secret that is written out", _ASSIGNED_KEYWORDS, _ASSIGNED, ignore_case=True, min_entropy=3.7
    ),
)  # fmt: skip
