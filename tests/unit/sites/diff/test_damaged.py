"""Diffs as models write them apply nearly always, and never in another way than was meant.

Run this file with `-s` to see the figures, one line for each kind of damage.
"""

from __future__ import annotations

import sys
from collections import Counter
from random import Random

import pytest

from sites.diff.apply import apply_diff
from sites.diff.model import DiffRefusedError
from tests.unit.sites.diff.corpus import MAKERS, data_of, edit, unified
from tests.unit.sites.diff.damage import KINDS

SAMPLES = 40
LEAST = 95.0
HARD = {
    "any context missing": 50.0,
    "context trimmed": 85.0,
    "indented deeper": 92.0,
    "no numbers, indented deeper": 92.0,
}
"""Where refusing is right more often. A line left out beside an insertion: nothing says on which side of it the new
line stands. One line of context in a page of repeated blocks: it fits twice. A lone insertion below shifted context:
nothing says whether the new lines are shifted as well."""


def outcome(kind: str, seed: int) -> str:
    rng = Random(f"{kind}/{seed}")
    path = rng.choice(sorted(MAKERS))
    old = MAKERS[path](rng)
    new = edit(rng, old)
    end = "\r\n" if kind == "LF diff of a CRLF file" else "\n"
    if kind == "spaces for tabs":
        old, new = ([line.replace("  ", "\t") for line in side] for side in (old, new))
    diff = b"".join(KINDS[kind](rng, unified(path, old, new)))
    files = {path: data_of(old, end), "other.html": b"<p>other</p>\n"}
    try:
        changed = apply_diff(files, diff).changed
    except DiffRefusedError as refused:
        return refused.reason.value
    return "applied" if changed == {path: data_of(new, end)} else "WRONG"


@pytest.mark.req("H-027")
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_diff_is_applied_as_it_was_meant_or_refused(kind: str) -> None:
    outcomes = Counter(outcome(kind, seed) for seed in range(SAMPLES))
    share = 100 * outcomes["applied"] / SAMPLES
    refused = {reason: count for reason, count in outcomes.items() if reason != "applied"}
    sys.stdout.write(f"\n{kind:34} {share:6.2f} % of {SAMPLES}, otherwise {refused}\n")
    assert outcomes["WRONG"] == 0
    assert share >= HARD.get(kind, LEAST)


def test_all_kinds_together_apply_in_at_least_95_of_100_cases() -> None:
    outcomes = Counter(outcome(kind, seed) for kind in KINDS for seed in range(1000, 1006))
    assert outcomes["WRONG"] == 0
    assert 100 * outcomes["applied"] / outcomes.total() >= LEAST
