from hashlib import sha256

from sites.spec.stylesheet import is_as_it_was_made, stylesheet
from sites.spec.theme import Theme

MARK = b"\n/* Rules of the catalog: "


def test_a_stylesheet_of_other_colours_or_rules_is_another_version_s_unless_its_bytes_changed_since() -> None:
    """A better tint would have taken the style sheet of each site made before it out of its spec (issue 20)."""
    ours = stylesheet(Theme(), {}, ["p { margin: 0; }"])
    theme, _, marked = ours.partition(MARK)
    rules = marked.partition(b"*/")[2]
    for variables, plain in (
        (theme.replace(b"--tint: ", b"--tint: #fff; --was: "), rules),
        (theme, rules + b"p { x: 1 }"),
    ):
        digest = sha256(variables + plain).hexdigest()[:16].encode()
        other = variables + MARK + digest + b" */" + plain
        assert other != ours
        assert is_as_it_was_made(other)
        assert not is_as_it_was_made(other.replace(b"--tint: ", b"--tint: red; --x: "))
        assert not is_as_it_was_made(other + b"p { color: red }")
    assert not is_as_it_was_made(b"p { color: red }")
