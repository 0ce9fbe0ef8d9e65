import pytest
import tinycss2
from hypothesis import given, settings
from hypothesis import strategies as st

from sites.scan.active_content import references


def urls(css: str) -> list[tuple[str, str]]:
    return [(one.kind, one.text) for one in references(css)]


@pytest.mark.threat("G5")
@pytest.mark.parametrize(
    ("css", "expected"),
    [
        ("a{b:url(x)}", [("image", "x")]),
        ("a{b:URL( 'x' )}", [("image", "x")]),
        ("a{b:u\\72l(x)}", [("image", "x")]),
        ("a{b:\\75 \\72 \\6c (x)}", [("image", "x")]),
        ("a{b:\\75\\72\\6c(x)}", [("image", "x")]),
        ("a{b:url(\\2f\\2f evil)}", [("image", "//evil")]),
        ("a{b:url(/*x)}/*", [("image", "/*x")]),
        ("/* url(x) */", []),
        ("a{b:'url(x)'}", []),
        ("a{b:'\\'url(x)'}", []),
        ("a{b:'\n;c:url(x)}", [("image", "x")]),
        (".a\\/\\*{b:url(x)}", [("image", "x")]),
        ("@import 'x';", [("style", "x")]),
        ("@IMPORT url(x) screen;", [("style", "x")]),
        ("@\\69mport 'x'", [("style", "x")]),
        ("@font-face{src:local('a'),url(x) format('woff')}b{c:url(y)}", [("font", "x"), ("image", "y")]),
        ("@font-face{a:b;src:src('x')}", [("font", "x")]),
        ("@namespace svg url(http://www.w3.org/2000/svg);a{b:url(x)}", [("image", "x")]),
        ("a{b:image-set('x' 1x, \"y\" 2x)}", [("image", "x"), ("image", "y")]),
        ("a{b:-webkit-image-set(url(x) 1x, 'y' 2x)}", [("image", "x"), ("image", "y")]),
        ("a{b:url('x' ) 'z'}", [("image", "x")]),
        ("a{behavior:url(x)}", [("active", "behavior"), ("image", "x")]),
        ("a{scroll-behavior:smooth;b:url(x)}", [("image", "x")]),
        ("a{-MOZ-binding : url(x)}", [("active", "-moz-binding"), ("image", "x")]),
        ("a{b:expression(x)}", [("active", "expression")]),
        ("a{b:url(", [("image", "")]),
        ("a{b:url('x", [("image", "x")]),
        ("a{b:url(x\\", [("image", "x\ufffd")]),
        ("a{b:1url(x);c:-url(y)}", []),
    ],
)
def test_what_a_style_sheet_loads_is_read_by_the_rules_of_css(css: str, expected: list[tuple[str, str]]) -> None:
    assert urls(css) == expected


def test_lines_are_counted_over_all_kinds_of_newlines() -> None:
    assert [one.line for one in references("a{}\r\nb{x:url(1)}\rc{\f x:url(2)}")] == [2, 4]


PIECES = st.lists(
    st.sampled_from(
        [
            "url(",
            "URL(",
            "u\\72l(",
            "x",
            "//e",
            "/*",
            "*/",
            "'",
            '"',
            "\\",
            "\n",
            "(",
            ")",
            "{",
            "}",
            ";",
            ":",
            "@import ",
            " ",
            "-",
            "image-set(",
            "a",
            "#",
            ",",
            "\\'",
            "é",
        ]
    ),
    max_size=14,
)


def parsed_urls(css: str) -> set[str]:
    found: set[str] = set()
    nodes = list(tinycss2.parse_component_value_list(css))
    while nodes:
        node = nodes.pop()
        if node.type == "url":
            found.add(node.value)
        elif node.type == "function" and node.lower_name == "url":
            arguments = [argument for argument in node.arguments if argument.type not in ("whitespace", "comment")]
            found.update(argument.value for argument in arguments[:1] if argument.type == "string")
        nodes.extend(getattr(node, "arguments", None) or getattr(node, "content", None) or [])
    return found


@pytest.mark.threat("G5")
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(PIECES)
def test_nothing_that_a_full_parser_sees_as_a_url_is_missed(pieces: list[str]) -> None:
    css = "".join(pieces)
    assert parsed_urls(css) <= {one.text for one in references(css)}
