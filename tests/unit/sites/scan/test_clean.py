"""What the catalog renders passes: a scan that refuses honest work would be switched off."""

import json
from typing import Any

import pytest

from routing.policy.platform import Profile, platform_policy
from sites.scan.engine import scan
from sites.spec.catalog import components
from sites.spec.model import parse_site
from sites.spec.render import render
from tests.unit.sites.spec.samples import demo_site, demo_text, every_component

DEFAULT = platform_policy().profiles["default"]


def findings(files: dict[str, bytes]) -> list[tuple[str, str, int, str]]:
    report = scan(files, DEFAULT, profile_name="default")
    return [(one.rule, one.file, one.line, one.message) for one in report.findings]


def test_a_page_with_the_example_of_every_component_passes() -> None:
    assert findings(dict(render(parse_site(json.dumps(every_component()))))) == []


@pytest.mark.parametrize("name", sorted(components()))
def test_the_example_of_each_component_renders_without_a_finding(name: str) -> None:
    if name in ("Page", "Shared"):
        return
    page = every_component()
    page["elements"] = {key: value for key, value in page["elements"].items() if key in ("page", f"e-{name}")}
    page["elements"]["page"]["children"] = [f"e-{name}"]
    assert findings(dict(render(parse_site(json.dumps(page))))) == []


def test_the_demo_site_passes() -> None:
    assert findings(dict(render(demo_site()))) == []


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
