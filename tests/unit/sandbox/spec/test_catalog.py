from __future__ import annotations

import json
import sys
from importlib import resources
from pathlib import Path

import pytest
from pydantic import ValidationError

from sandbox.spec import components as package
from sandbox.spec.catalog import catalog_prompt, components, outline_prompt
from sandbox.spec.model import INDEX, parse_site
from sandbox.spec.outline import expand_outline
from sandbox.spec.render import STYLESHEET, render
from sandbox.spec.validate import validate
from tests.unit.sandbox.spec.samples import element, page

COUPON = '''
"""Coupon: a component that this test adds as one file."""

from sandbox.spec.catalog import Component, Props, RenderContext, Title
from sandbox.spec.html import Html, tag


class CouponProps(Props):
    """Props of Coupon."""

    code: Title


def render(props: CouponProps, ctx: RenderContext) -> Html:
    """Render the code."""
    return tag("p", props.code, class_="coupon", id=ctx.id)


COMPONENT = Component(
    name="Coupon", summary="a coupon: code", props=CouponProps, example={"code": "RYE10"},
    render=render, words=("coupon",),
    outline=lambda section, business: {"code": section.heading or business.name}, outline_hint="heading = code",
    css=".coupon { color: var(--link); }",
)
'''


@pytest.mark.req("H-125")
def test_a_component_added_as_one_file_is_in_catalog_prompt_validation_render_and_style(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "coupon.py").write_text(COUPON)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    components.cache_clear()
    try:
        site = parse_site(page(one=element("Coupon", code="RYE<10>")))
        assert validate(site) == []
        files = render(site)
        assert '<p class="coupon" id="one">RYE&lt;10&gt;</p>' in files[INDEX].decode()
        assert b".coupon { color" in files[STYLESHEET]
        assert "- Coupon: a coupon: code" in catalog_prompt()
        assert "- Coupon: heading = code" in outline_prompt()
        outline = {"name": "Bakery", "sections": [{"kind": "Coupon", "heading": "RYE10"}]}
        assert b'class="coupon" id="coupon">RYE10<' in render(expand_outline(outline))[INDEX]
    finally:
        components.cache_clear()
        sys.modules.pop(f"{package.__name__}.coupon", None)


def test_every_module_in_the_folder_is_one_component_of_the_catalog() -> None:
    files = [entry.name for entry in resources.files(package).iterdir() if entry.name.endswith(".py")]
    assert len(components()) == len(files) - 1


def test_every_component_refuses_a_prop_that_it_does_not_know() -> None:
    for component in components().values():
        with pytest.raises(ValidationError):
            component.props.model_validate({**component.example, "evil": 1})


def test_no_two_components_answer_to_the_same_word() -> None:
    words = [word for component in components().values() for word in component.words]
    assert len(words) == len(set(words))
    assert all(word == word.lower() for word in words)


def test_the_prompts_name_every_component_and_stay_small() -> None:
    assert all(f"- {name}: " in catalog_prompt() for name in components())
    assert len(catalog_prompt().encode()) < 10_000
    assert len(outline_prompt().encode()) < 5_000
    assert all(json.dumps(component.example) for component in components().values())
