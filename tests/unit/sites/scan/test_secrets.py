import gzip
import zlib
from base64 import b64encode, encodebytes
from html import escape
from urllib.parse import quote

import pytest

from routing.policy.platform import platform_policy
from sites.scan.engine import scan

KEY = "sk-" + "ant-api03-Qw8zR2tY6uI0pA4sD9fG"
PROFILE = platform_policy().profiles["default"]

SAMPLES = [
    ("secret-anthropic", KEY),
    ("secret-openai", "sk-" + "proj-Ab3dE5gH7jK9mN1pQ3sT5v"),
    ("secret-aws-id", "AKIA" + "Q3EGR5T7V2WXYZ4B"),
    ("secret-aws-secret", "aws_secret_access_key = " + "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzAb1cD2eF3"),
    ("secret-github", "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"),
    ("secret-gitlab", "glpat-" + "a1B2c3D4e5F6g7H8i9J0"),
    ("secret-stripe", "sk_" + "live_a1B2c3D4e5F6g7H8"),
    ("secret-slack", "xoxb-" + "123456789012-abcdefghijkl"),
    ("secret-slack-hook", "https://hooks.slack" + ".com/services/T0AB1CD2E/B0FG3HI4J/k5L6m7N8"),
    ("secret-google", "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q"),
    ("secret-private-key", "-----BEGIN RSA " + "PRIVATE KEY-----"),
    ("secret-private-key", "-----BEGIN " + "PRIVATE KEY-----"),
    ("secret-jwt", "eyJ" + "hbGciOiJIUzI1NiJ9.eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"),
    ("secret-npm", "npm_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"),
    ("secret-sendgrid", "SG." + "a1B2c3D4e5F6g7H8i9J0k1.a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"),
    ("secret-telegram", "12345678:AA" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q"),
    ("secret-url-password", "postgres://admin:" + "hunter2pass@db.internal/x"),
    ("secret-assigned", 'apiKey: "' + 'f81d4fae7dec11d0a76500a0c91e6bf6x"'),
    ("secret-azure-storage", "AccountKey=" + "aB3dE5gH7jK9" * 7 + "aB=="),
    ("secret-env-line", "API_SECRET=" + "f81d4fae7dec11d0a76500a0c91e6bf6x"),
    ("secret-docker", "dckr_pat_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N"),
    ("secret-groq", "gsk_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1V2"),
    ("secret-age", "AGE-SECRET-KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L" * 2),
    ("secret-tailscale", "tskey-" + "auth-kA1b2C3d4E5f6CNTRL-a1B2c3D4"),
    ("secret-airtable", "pat" + "A1b2C3d4E5f6G7." + "0123456789abcdef" * 4),
    ("secret-planetscale", "pscale_" + "tkn_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6"),
    ("secret-shopify", "shpat_" + "0123456789abcdef0123456789abcdef"),
]


def found(data: bytes, name: str = "a.txt", known_keys: tuple[str, ...] = ()) -> dict[str, tuple[int, str]]:
    report = scan({name: data}, PROFILE, profile_name="default", known_keys=known_keys)
    return {one.rule: (one.line, one.message) for one in report.findings if one.gate == "secrets"}


@pytest.mark.threat("G10")
@pytest.mark.parametrize(("rule", "sample"), SAMPLES, ids=[rule for rule, _ in SAMPLES])
def test_each_kind_of_key_is_found_and_never_shown(rule: str, sample: str) -> None:
    hits = found(f"first line\nconst x = '{sample}'\n".encode())
    assert hits[rule][0] == 2
    assert sample[-12:] not in hits[rule][1]


@pytest.mark.threat("G10")
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("package-lock.json", f"{KEY}"),
        ("x.png", f"\x89PNG {KEY}"),
        ("a.js.map", KEY),
        ("a.html", f"<!-- {KEY} -->"),
        ("a.py.txt", f"{KEY} # pragma: allowlist secret"),
        ("a.txt", f"{KEY} # gitleaks:allow"),
        ("a.svg", f"<svg><metadata>{KEY}</metadata></svg>"),
        ("noextension", KEY),
        ("a.js", f'"{KEY[:9]}" + "{KEY[9:]}"'),
        ("a.js", f"'{KEY[:9]}' +\n '{KEY[9:]}'"),
        ("a.js", "".join(f"\\x{ord(letter):02x}" for letter in KEY)),
        ("a.js", "".join(f"\\u{ord(letter):04x}" for letter in KEY)),
        ("a.txt", b64encode(f"key is {KEY}".encode()).decode()),
        ("a.txt", b64encode(b64encode(f"key is {KEY}".encode())).decode()),
        ("a.txt", b64encode(f"key is {KEY}".encode(), altchars=b"-_").decode().rstrip("=")),
        ("a.html", "data:text/plain;base64," + b64encode(KEY.encode()).decode()),
        ("a.txt", "".join(f"%{ord(letter):02X}" for letter in KEY)),
        ("a.txt", quote(KEY).replace("-", "%2d")),
        ("a.html", "".join(f"&#{ord(letter)};" for letter in KEY)),
        ("a.html", "".join(f"&#x{ord(letter):x}" for letter in KEY)),
        ("a.html", escape(KEY).replace("-", "&#45;")),
        ("a.html", KEY.replace("-", "-<wbr>")),
        ("a.html", f"{KEY[:9]}<b></b>{KEY[9:14]}<i class='x'>{KEY[14:]}"),
        ("a.html", f"{KEY[:9]}&shy;{KEY[9:]}"),
        ("a.html", f"{KEY[:9]}&#8203;{KEY[9:]}"),
        ("a.txt", f"{KEY[:9]}\xe2\x80\x8b{KEY[9:]}"),
        ("a.js", f"'{KEY[:9]}'.concat('{KEY[9:]}')"),
        ("a.js", f"['{KEY[:9]}', '{KEY[9:]}'].join('')"),
        ("a.js", "String.fromCharCode(" + ", ".join(str(ord(letter)) for letter in KEY) + ")"),
        ("a.js", "".join(f"\\{ord(letter):03o}" for letter in KEY)),
        ("a.css", "a{content:'" + "".join(f"\\{ord(letter):x} " for letter in KEY) + "'}"),
        ("a.txt", f"key is {KEY}".encode().hex()),
        ("a.txt", b64encode(f"key is {KEY}".encode().hex().encode()).decode()),
        ("a.txt", b64encode(quote(KEY).replace("-", "%2d").encode()).decode()),
        ("a.txt", quote(b64encode(b64encode(KEY.encode())).decode()).replace("=", "%3d")),
        ("a.txt", b64encode(gzip.compress(KEY.encode() * 2, mtime=0)).decode()),
        ("a.txt", b64encode(zlib.compress(KEY.encode() * 2)).decode()),
        ("a.txt", encodebytes(b"x" * 70 + KEY.encode() + b"x" * 30).decode()),
        ("a.txt", b64encode(KEY.encode("utf-16")).decode()),
        (
            "a.js",
            "atob('" + b64encode(KEY.encode()).decode()[:17] + "' + '" + b64encode(KEY.encode()).decode()[17:] + "')",
        ),
        ("a.gz", gzip.compress(KEY.encode(), mtime=0).decode("latin-1")),
    ],
)
def test_no_name_comment_or_encoding_silences_the_scan(name: str, data: str) -> None:
    assert "secret-anthropic" in found(data.encode("latin-1"), name)


@pytest.mark.threat("G10")
def test_text_in_utf16_is_read() -> None:
    assert "secret-anthropic" in found(KEY.encode("utf-16"))


@pytest.mark.threat("C9", "G10")
@pytest.mark.parametrize("around", ["", "a", "ab", "abc"])
def test_a_key_of_this_installation_is_found_in_every_form(around: str) -> None:
    key = "correct-horse+battery/staple"
    for form in (
        key,
        around + b64encode((around + key + around).encode()).decode(),
        b64encode((around + key).encode(), altchars=b"-_").decode(),
        "".join(f"%{ord(letter):02x}" for letter in key),
        "".join(f"&#{ord(letter)};" for letter in key),
        key.encode().hex(),
        quote(key, safe=""),
    ):
        hits = found(f"x\n{form}".encode(), known_keys=("unrelated-key-of-another-kind", key))
        assert hits["known-key"][0] == 2
        assert key not in hits["known-key"][1]


def test_a_known_key_that_is_absent_is_not_found() -> None:
    assert found(b"correct-horse battery staple", known_keys=("correct-horse+battery/staple", "short")) == {}


@pytest.mark.parametrize(
    "text",
    [
        "sk-ant-xxxxxxxxxxxxxxxxxxxxxxxx",
        "task-management-for-teams-and-many-other-things",
        'placeholder="Enter your password"',
        'const token = getToken("session")',
        "https://example.org/path:with@at",
        "-----BEGIN CERTIFICATE-----",
        "AKIAshort",
        "eyJhbGciOiJIUzI1NiJ9 alone",
        "SUPPORTED_KEY=value and more words",
        "deadbeef" * 8,
        "['skill', 'ant'].join('-')",
        ",".join(str(number) for number in range(100, 400)),
    ],
)
def test_ordinary_text_is_no_secret(text: str) -> None:
    assert found(text.encode()) == {}


@pytest.mark.threat("G10")
@pytest.mark.parametrize("piece", ["%41", "token "])
def test_what_cannot_be_checked_does_not_pass(piece: str) -> None:
    assert "too-much-encoding" in found(piece.encode() * 310_000)


@pytest.mark.parametrize("written", ['const apiKey = "{}";', "API_SECRET={}\n", 'password="{}"'])
def test_a_secret_is_reported_once_however_it_is_written(written: str) -> None:
    report = scan({"index.html": b"x", "a.js": written.format(KEY).encode()}, PROFILE, profile_name="default")
    assert [found.rule for found in report.findings if found.gate == "secrets"] == ["secret-anthropic"]


def test_a_secret_without_an_issuer_is_still_found_beside_one_with() -> None:
    text = f'const apiKey = "{KEY}";\nconst password = "f81d4fae7dec11d0a76500a0c91e6bf6x";'
    report = scan({"index.html": b"x", "a.js": text.encode()}, PROFILE, profile_name="default")
    assert [found.rule for found in report.findings if found.gate == "secrets"] == [
        "secret-anthropic",
        "secret-assigned",
    ]
