from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
from pydantic import ValidationError

from routing.decision.router import Signals, SiteSignals, decide
from routing.model_call import load_prompt
from routing.policy.platform import platform_policy
from routing.queues import Tier
from sites.spec import components as package
from sites.spec.catalog import catalog_prompt, component_rules, components, outline_prompt
from sites.spec.edit import apply_edit
from sites.spec.model import INDEX, parse_site
from sites.spec.outline import expand_outline
from sites.spec.render import STYLESHEET, render
from tests.unit.sites.spec.samples import demo_site, element, findings, page

COUPON = '''
"""Coupons: a component that this test adds as one module with its stylesheet."""

from routing.model_call import load_prompt
from sites.spec.catalog import Component, Props, RenderContext, Title
from sites.spec.html import Html, tag


class CouponProps(Props):
    """A code that makes something cheaper."""

    code: Title


@Component(
    "Coupon",
    summary="a coupon: code",
    example={"code": "RYE10"},
    words=("coupon",),
    outline=lambda section, business: {"code": section.heading or business.name},
    outline_hint="heading = code",
)
def _coupon(props: CouponProps, ctx: RenderContext) -> Html:
    return tag("p", props.code, class_="coupon", id=ctx.id)
'''
COUPON_RULES = """\
/* Coupon */
.coupon { color: var(--link); }
"""


@pytest.fixture
def coupon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "coupons.py").write_text(COUPON)
    (tmp_path / "coupons.css").write_text(COUPON_RULES)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    components.cache_clear()
    component_rules.cache_clear()
    yield
    components.cache_clear()
    component_rules.cache_clear()
    sys.modules.pop(f"{package.__name__}.coupons", None)


@pytest.mark.req("H-125")
@pytest.mark.usefixtures("coupon")
def test_a_component_registered_in_one_place_is_in_catalog_prompt_validation_render_and_style() -> None:
    site = parse_site(page(one=element("Coupon", code="RYE<10>")))
    assert findings(site) == ()
    files = render(site)
    assert '<p class="coupon" id="one">RYE&lt;10&gt;</p>' in files[INDEX].decode()
    assert b".coupon { color" in files[STYLESHEET]
    assert "- Coupon: a coupon: code; requires code" in catalog_prompt()
    assert "- Coupon: heading = code" in outline_prompt()
    outline = {"name": "Bakery", "sections": [{"kind": "Coupon", "heading": "RYE10"}]}
    assert b'class="coupon" id="coupon">RYE10<' in render(expand_outline(outline))[INDEX]
    assert decide(Signals(prompt="Add a coupon", site=SiteSignals(files=2)), platform_policy()).tier is Tier.SPEC


def test_every_part_of_a_stylesheet_belongs_to_a_component_of_the_module_beside_it() -> None:
    files = {entry.name: entry.read_text() for entry in resources.files(package).iterdir() if entry.is_file()}
    styles = {name: text for name, text in files.items() if name.endswith(".css")}
    assert styles
    for name, text in styles.items():
        module = files[name.removesuffix("css") + "py"]
        assert text.startswith("/* ")
        for component in re.findall(r"^/\* (\w+) \*/$", text, re.MULTILINE):
            assert f'@Component("{component}"' in re.sub(r"\(\s+", "(", module)
    assert len(component_rules()) == sum(text.count("*/\n") for text in styles.values())


def test_every_component_refuses_a_prop_that_it_does_not_know() -> None:
    for component in components().values():
        with pytest.raises(ValidationError):
            component.props.model_validate({**component.example, "evil": 1})


def test_no_two_components_answer_to_the_same_word() -> None:
    words = [word for component in components().values() for word in component.words]
    assert len(words) == len(set(words))
    assert all(word == word.lower() for word in words)


def test_the_edits_that_the_prompt_shows_as_examples_apply() -> None:
    examples = re.findall(r"(\[\{\"op\": .*\}\])(?:,|$)", catalog_prompt(), re.MULTILINE)
    assert len(examples) == 2
    for example in examples:
        assert apply_edit(demo_site(), json.loads(example)) != demo_site()


def test_the_prompts_name_every_component_and_stay_small() -> None:
    assert all(f"- {name}: " in catalog_prompt() for name in components())
    assert len(catalog_prompt().encode()) < 10_000
    assert len(outline_prompt().encode()) < 5_000
    assert all(json.dumps(component.example) for component in components().values())


def test_the_edit_prompt_says_where_a_form_goes_that_no_service_receives() -> None:
    form = next(line for line in catalog_prompt().splitlines() if line.startswith("- ContactForm: "))
    assert form.endswith("(URL of a form service; else the visitor's e-mail opens)"), (
        "so that 'where does it go?' is answered"
    )


def test_every_prompt_that_can_ask_the_owner_has_one_rule_of_when() -> None:
    prompts = [
        catalog_prompt(),
        *(load_prompt(name) for name in ("patch", "planning_advocate", "planning_critic")),
    ]
    assert all(prompt.count("Ask only for what the owner alone can know") == 1 for prompt in prompts)
    assert not any("{asking}" in prompt for prompt in prompts)


def test_both_tools_that_edit_have_one_rule_of_what_waits_for_a_day() -> None:
    catalog, patch = (
        [line for line in text.splitlines() if "goes live" in line] for text in (catalog_prompt(), load_prompt("patch"))
    )
    assert catalog == patch
    assert len(patch) == 1
    assert "takes a script" in patch[0]


@pytest.mark.parametrize(
    ("name", "clause"),
    [
        ("Hero", "cover (light words over the picture, always shaded dark)"),
        ("Posts", "which, as the list, shows date and author"),
        ("Pricing", "badge (fills its button)"),
        ("Header", "logo or drawing (a mark)"),
        ("MapLink", "embed true (Google Maps)"),
    ],
)
def test_the_prompt_says_what_a_component_does_by_itself(name: str, clause: str) -> None:
    (line,) = [line for line in catalog_prompt().splitlines() if line.startswith(f"- {name}: ")]
    assert clause in line
