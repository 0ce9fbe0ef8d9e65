"""Changes as a terminal gets them."""

from __future__ import annotations

from uuid import UUID

import pytest

from producers.commands.jobs import show_comparison
from producers.use_cases.review import Comparison, FileChange


def test_nothing_in_a_file_makes_a_terminal_obey(capsys: pytest.CaptureFixture[str]) -> None:
    change = FileChange(
        path="a\x1b]0;x.html", status="changed", before_bytes=1, after_bytes=2, diff="-a\n+\x1b[2Jb\u202ec\n"
    )
    show_comparison(Comparison(before=None, after=UUID(int=1), added=0, removed=0, changed=1, changes=(change,)))
    shown = capsys.readouterr().out
    assert "changed a" in shown
    assert not any(sign in shown for sign in ("\x1b", "\u202e"))
