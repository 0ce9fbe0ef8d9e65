import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from sites.scan.html_tokenizer import MarkupBudget, Page, Tag, decode_references


def tags(text: str) -> list[Tag]:
    return list(Page(text, MarkupBudget()).tags())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<A B=C d='e' f=\"g\" h>", {"b": "C", "d": "e", "f": "g", "h": ""}),
        ("<a/b/c=d/>", {"b": "", "c": "d/"}),
        ("<a =b=c>", {"=b": "c"}),
        ("<a b = c>", {"b": "c"}),
        ("<a b=>", {"b": ""}),
        ("<a b=c>d", {"b": "c"}),
        ("<a b='>'c=d>", {"b": ">", "c": "d"}),
        ("<a b=`c d`>", {"b": "`c", "d`": ""}),
        ("<a b='&lt;&#x6a;&copy=&notin;&noti;'>", {"b": "<j&copy=\u2209&noti;"}),
    ],
)
def test_attributes_are_read_as_browsers_read_them(text: str, expected: dict[str, str]) -> None:
    assert {one.name: one.value for one in tags(text)[0].attributes} == expected


@pytest.mark.parametrize(
    "text", ["<a b='", "<a b", "<a", "<", "a < b", "<1>", "</a onclick=x>", "<!-- <a>", "<!a>", "<?a>", ""]
)
def test_what_is_no_start_tag_is_none(text: str) -> None:
    assert tags(text) == []


def test_the_first_of_two_equal_attributes_counts_and_both_are_seen() -> None:
    tag = tags("<a b=1 b=2>")[0]
    assert tag.get("b") == "1"
    assert [one.value for one in tag.attributes] == ["1", "2"]


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("<script>a</script >b", "a"),
        ("<script>a</scripts></script>", "a</scripts>"),
        ("<script><!-- </script> -->", "<!-- "),
        ("<script><!--<script></script>--></script>", "<!--<script></script>-->"),
        ("<script><!--><script></script>", "<!--><script>"),
        ("<title>a<b></TITLE>", "a<b>"),
        ("<svg><style>a</style></svg>", "a"),
    ],
)
def test_text_ends_where_browsers_end_it(text: str, inner: str) -> None:
    assert next(tag.text for tag in tags(text) if tag.text is not None) == inner


def test_references_without_a_name_stay() -> None:
    assert decode_references("a&b&;&#;&nosuch;") == "a&b&;&#;&nosuch;"


PIECES = st.lists(
    st.sampled_from(
        [
            "<a",
            "<img",
            "<p",
            "<style>",
            "</style>",
            "<script>",
            "</script>",
            "<textarea>",
            "</textarea>",
            "<!--",
            "-->",
            "--!>",
            ">",
            "/",
            " ",
            "=",
            "'",
            '"',
            "onload",
            "x",
            "<",
            "</",
            "<!",
            "<?",
            "&lt;",
            "&#106",
            "\n",
            "`",
            "<b c=d>",
        ]
    ),
    max_size=16,
)


@pytest.mark.threat("G6")
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(PIECES)
def test_nothing_that_a_tree_builder_sees_is_missed(pieces: list[str]) -> None:
    text = "".join(pieces) + "<br>"
    page = Page(text, MarkupBudget())
    ours = {(tag.name, one.name, one.value) for tag in page.tags() for one in tag.attributes}
    root = etree.fromstring(text.encode(), etree.HTMLParser(encoding="utf-8"))
    if root is None or page.ambiguous:
        return
    theirs = {
        (element.tag, str(name), str(value)) for element in root.iter("*") for name, value in element.attrib.items()
    }
    assert theirs <= ours
