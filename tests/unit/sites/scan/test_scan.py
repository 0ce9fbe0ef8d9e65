"""Every attack of tests/data/hostile/ is refused, and for the right reason."""

from pathlib import Path
from typing import Any

import pytest

from routing.policy.platform import Profile
from routing.yaml_data import load_yaml
from sites.scan.engine import scan
from sites.scan.frames import SANDBOX
from sites.scan.rules import RULES, describe_limits

CORPUS = Path(__file__).parents[3] / "data" / "hostile"
SOURCES = sorted(CORPUS.glob("*.yaml"))
PROFILE = Profile(
    js_bytes=51200,
    js_gzip_bytes=20480,
    max_files=500,
    script_hosts=("cdn.example",),
    image_hosts=("img.example",),
    form_hosts=("forms.example",),
    frames=("video.example/embed/",),
)
SHA384 = "sha384-" + "A" * 64


def cases_of(source: Path) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = load_yaml(source.read_bytes())
    return cases


def files_of(case: dict[str, Any]) -> dict[str, bytes]:
    files = case.get("files") or {"index.html": case["page"].replace("{sha}", SHA384)}
    return {path: text.encode() for path, text in files.items()}


def is_refused(case: dict[str, Any]) -> bool:
    profile = PROFILE.model_copy(update={"form_hosts": ()}) if case.get("profile") == "no-forms" else PROFILE
    report = scan(files_of(case), profile, profile_name="hostile")
    return case["rule"] in {finding.rule for finding in report.findings} and not report.passed


@pytest.mark.parametrize(
    "source", [pytest.param(path, marks=pytest.mark.threat(path.stem), id=path.stem) for path in SOURCES]
)
def test_every_attack_is_refused_by_the_rule_that_names_it(source: Path) -> None:
    assert [case for case in cases_of(source) if not is_refused(case)] == []
    assert {case["rule"] for case in cases_of(source)} <= RULES.keys()


def test_what_a_model_is_told_that_it_may_use_passes() -> None:
    told = describe_limits(PROFILE)
    uses = {
        '<img src="https://img.example/a.png" alt="">': "https://img.example",
        '<form action="https://forms.example/" method="post"></form>': "https://forms.example",
        f'<script src="https://cdn.example/a.js" integrity="{SHA384}" crossorigin="anonymous"></script>': "cdn.example",
        "<script>document.title</script>": "inline <script>",
        '<form action="mailto:ann@shop.example"></form>': "mailto:",
        f'<iframe name="f" title="Film" sandbox="{SANDBOX}"></iframe>'
        '<a href="https://video.example/embed/1?play=1" target="f">x</a>': "video.example/embed/",
    }
    page = "<!doctype html><html lang=en><head><title>x</title></head><body>{}</body></html>".format
    for use, words in uses.items():
        assert words in told
        assert scan({"index.html": page(use).encode()}, PROFILE, profile_name="told").findings == ()
    without = describe_limits(PROFILE.model_copy(update={"js_bytes": 0, "image_hosts": ()}))
    assert "no script at all" in without
    assert "img.example" not in without
    assert "no frames" in describe_limits(PROFILE.model_copy(update={"frames": ()}))


def test_the_header_allows_the_embedded_pages_of_a_release_and_no_others() -> None:
    inner = '<a href="https://video.example/embed/2?x=1#t">x</a><a target=_blank href="https://evil.example/">y</a>'
    pages = {
        "index.html": f"<iframe name=f title=x sandbox></iframe><a href=https://video.example/embed/1 target=f>x</a>"
        f"<iframe title=y sandbox srcdoc='{inner}'></iframe><a href=https://evil.example/ target=g>z</a>",
        "other.html": "<a href=https://video.example/embed/3>an ordinary link</a>",
    }
    report = scan({path: text.encode() for path, text in pages.items()}, PROFILE, profile_name="frames")
    assert report.findings == ()
    assert "; frame-src https://video.example/embed/1 https://video.example/embed/2;" in report.csp
    many = "".join(f"<a href=https://video.example/embed/{'x' * 100}{at} target=f>x</a>" for at in range(40))
    crowded = {"index.html": f"<iframe name=f title=x sandbox></iframe>{many}".encode()}
    assert [each.rule for each in scan(crowded, PROFILE, profile_name="frames").findings] == ["too-many-frames"]
