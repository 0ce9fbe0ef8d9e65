"""The shipped second opinion is what its labels make."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest

from routing.decision.second_opinion import BUCKETS, HEAD, SIZE, Asked
from routing.decision.training import digest_of, fit, labelled, rows_of, train

ROOT = Path(__file__).resolve().parents[4]
DATA = ROOT / "tests" / "data"
LABELS = (DATA / "routing_golden.jsonl", DATA / "routing_trained.jsonl")


@pytest.mark.slow
def test_the_same_labels_make_the_same_file() -> None:
    some = labelled(LABELS)[::400]
    assert train(some) == train(some)


def test_nothing_that_measures_it_is_trained_on() -> None:
    held_out = {line["prompt"] for line in labelled([DATA / "routing_held_out.jsonl"])}
    assert held_out.isdisjoint(line["prompt"] for line in labelled(LABELS))


@pytest.mark.slow
def test_the_shipped_file_is_small_and_made_from_the_labels_in_the_repository() -> None:
    """`make routing-model` makes it; here the smallest of its models is made again.

    The last bit of a logarithm may differ from one machine to the next.
    """
    shipped = (ROOT / "routing" / "decision" / "second_opinion.bin").read_bytes()
    assert len(shipped) <= 2**20
    data, samples = zlib.decompress(shipped), labelled(LABELS)
    assert json.loads(data[SIZE:])["labels"] == digest_of(samples), "run make routing-model"
    size = HEAD.size + BUCKETS
    ours = fit(rows_of(Asked.HIGH_STAKES, samples)).pack()
    theirs = data[Asked.HIGH_STAKES * size : (Asked.HIGH_STAKES + 1) * size]
    assert sum(one != other for one, other in zip(ours, theirs, strict=True)) <= 20
