from types import SimpleNamespace
from typing import cast

from routing.policy.platform import platform_policy
from workers.attempt import Inputs
from workers.handlers.patch import _show


def test_a_file_that_a_model_asks_for_comes_beside_those_that_it_saw() -> None:
    """With the second page, the first one was gone, was asked for in vain, and the job went to tier 3 (issue 20)."""
    page = "<h1>{}</h1>\n" + "<p>Bread from an old oven, on the table at eight.</p>\n" * 300
    files = {f"{name}.html": page.format(name).encode() for name in ("index", "classes", "contact")}
    site, policy = SimpleNamespace(profile="default"), platform_policy()
    given = SimpleNamespace(words="A red strip on the contact page", files=files, start=None, site=site, policy=policy)
    first = _show(cast(Inputs, given))
    assert set(first.seen) == {"contact.html"}
    again = _show(cast(Inputs, given), ["classes.html", *first.pages])
    assert set(again.seen) == {"contact.html", "classes.html"}
