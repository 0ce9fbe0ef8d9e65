"""What commands print."""

import pytest

from producers.commands.context import err, out, print_facts, print_table

HOSTILE = "a\x1b]0;owned\x07\x9b2J\u202eb\nc"


def test_no_text_controls_the_terminal_whoever_wrote_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_facts([("answer", HOSTILE)])
    print_table(("job", "prompt"), [(HOSTILE, HOSTILE)])
    out.print(HOSTILE, markup=False)
    err.print(HOSTILE, markup=False)
    shown = capsys.readouterr()
    for text in (shown.out, shown.err):
        assert "]0;owned" in text
        assert all(letter.isprintable() or letter == "\n" for letter in text)
