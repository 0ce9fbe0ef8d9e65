"""Train the second opinion from labelled prompts: `make routing-model`.

In plain Python, with fixed seeds, so that the same labels give the same file.
"""

from __future__ import annotations

import json
import math
import random
import sys
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from routing.decision.second_opinion import (
    BUCKETS,
    FILE,
    HEAD,
    Asked,
    Site,
    chance,
    parts_of,
    see,
    seen_of_tier,
    softmax,
)
from routing.decision.tier_rules import matched_group
from routing.prompt.parsed_prompt import parse_prompt
from routing.prompt.vocabulary import shipped_vocabulary
from routing.queues import Tier

_EPOCHS = 12
_RATE = 0.25
_CLOSE_ENOUGH = 0.03
"""A smaller error of a probability takes no further step."""
_TIER_EPOCHS = 6
_LEAST_HAVING = 3
"""Prompts that must have a part: what fewer have teaches little about others, and costs a byte."""


class _Row(NamedTuple):
    """What is seen of a prompt, whether the answer is yes, and how many times it counts."""

    buckets: list[int]
    answer: bool
    weight: int


class _Edit(NamedTuple):
    """An edit whose label names its tier."""

    buckets: list[int]
    rule: str
    site: Site
    tier: Tier
    weight: int


class _Fitted(NamedTuple):
    """A linear model, one weight for each bucket."""

    weights: array[float]
    bias: float

    def read(self, buckets: Sequence[int]) -> float:
        return chance(self.bias + sum(map(self.weights.__getitem__, buckets)) / math.sqrt(len(buckets)))

    def pack(self) -> bytes:
        scale = max(map(abs, self.weights)) / 127 or 1.0
        return HEAD.pack(scale, self.bias) + array("b", (round(weight / scale) for weight in self.weights)).tobytes()


Sample = Mapping[str, Any]
"""A labelled prompt, as `route check` takes them."""


def labelled(files: Iterable[Path]) -> list[Sample]:
    """Return the labelled prompts of files."""
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def digest_of(samples: Iterable[Sample]) -> str:
    """Return the digest of labels, by which a model shows what it was trained on."""
    return sha256("\n".join(json.dumps(sample) for sample in samples).encode()).hexdigest()


def train(samples: Sequence[Sample]) -> bytes:
    """Return the models of labelled prompts.

    The seventh must not trust the others more than they deserve on prompts they have not seen: what it is trained on
    comes from models of the other half of the prompts.
    """
    seen = [_see(sample) for sample in samples]
    rows = [_rows_of(asked, samples, seen) for asked in Asked]
    halves = [[row for row in rows[asked] if _half_of(row.buckets) == half] for half in (0, 1) for asked in _OF_TIERS]
    with ProcessPoolExecutor() as pool:
        *fitted, even_beyond, even_agent, odd_beyond, odd_agent = pool.map(fit, [*rows, *halves])
    others = ((odd_beyond, odd_agent), (even_beyond, even_agent))
    edits = [edit for sample, buckets in zip(samples, seen, strict=True) for edit in _edits_of(sample, buckets)]
    tiers = _fit_tiers(edits, [_read_both(others[_half_of(edit.buckets)], edit) for edit in edits])
    told = {"labels": digest_of(samples), "tiers": tiers}
    return b"".join(each.pack() for each in fitted) + json.dumps(told).encode()


def rows_of(asked: Asked, samples: Sequence[Sample]) -> list[_Row]:
    """Return the labelled prompts that answer a question."""
    answering = [sample for sample in samples if asked in dict(_answers(sample))]
    return _rows_of(asked, answering, [_see(sample) for sample in answering])


def _rows_of(asked: Asked, samples: Sequence[Sample], seen: Sequence[list[int]]) -> list[_Row]:
    pairs = zip(samples, seen, strict=True)
    found = ((buckets, dict(_answers(sample)).get(asked), sample.get("weight", 1)) for sample, buckets in pairs)
    return [_Row(buckets, answer, weight) for buckets, answer, weight in found if answer is not None]


def _edits_of(sample: Sample, buckets: list[int]) -> Iterator[_Edit]:
    if (site := _site_of(sample)) is not None and Asked.BEYOND_SPEC in dict(_answers(sample)):
        rule = matched_group(parse_prompt(sample["prompt"], shipped_vocabulary()), is_new=site.files == 0)
        yield _Edit(buckets, rule, site, Tier(sample["expect"]["tier"]), sample.get("weight", 1))


def _see(sample: Sample) -> list[int]:
    seen = see(parse_prompt(sample["prompt"], shipped_vocabulary()), _site_of(sample))
    return [bucket for word, places in seen.values() for bucket in (*parts_of(word).buckets, *places)]


def _site_of(sample: Sample) -> Site | None:
    site = sample.get("site")
    return Site(site["files"], site["has_build"]) if site else None


_OF_TIERS = (Asked.BEYOND_SPEC, Asked.AGENT)


def _half_of(buckets: Sequence[int]) -> int:
    return sum(buckets) % 2


def _read_both(models: tuple[_Fitted, _Fitted], edit: _Edit) -> dict[str, float]:
    beyond, agent = models
    return seen_of_tier(beyond.read(edit.buckets), agent.read(edit.buckets), rule=edit.rule, site=edit.site)


def _answers(row: Sample) -> Iterator[tuple[Asked, bool]]:
    """Yield what the label of a prompt answers; nothing that more than its words decided, or that it leaves open."""
    expected, site = row["expect"], row.get("site")
    if "also_mode" not in expected:
        yield Asked.ONLY_ASKS, expected["mode"] == "ANSWER"
    if expected["mode"] != "ACTION":
        return
    if "intent" in expected and "also_intent" not in expected:
        yield Asked.MENDS, expected["intent"] == "fix"
    if "debate" in expected:
        debates = (expected, *expected.get("also_debate", ()))
        is_debated = expected["debate"] == "planning"
        if len({each["debate"] for each in debates}) == 1:
            yield Asked.DEBATED, is_debated
        if is_debated and len({each["stakes"] for each in debates}) == 1:
            yield Asked.HIGH_STAKES, expected["stakes"] == "high"
    tier = expected.get("tier")
    if tier and site and not (row.get("preference") or row.get("advanced_edit")):
        yield Asked.BEYOND_SPEC, tier > Tier.SPEC
        if tier > Tier.SPEC:
            yield Asked.AGENT, tier == Tier.AGENT


def fit(rows: Sequence[_Row]) -> _Fitted:
    """Fit a model by stochastic gradient descent with a rate for each weight (AdaGrad)."""
    weights, squares, bias = [0.0] * (BUCKETS + 1), [1e-8] * BUCKETS, 0.0
    order, dice, root = list(range(len(rows))), random.Random(5), math.sqrt
    having = Counter(bucket for row in rows for bucket in set(row.buckets))
    seen = [
        ([bucket for bucket in row.buckets if having[bucket] >= _LEAST_HAVING], 1 / root(len(row.buckets)))
        for row in rows
    ]
    nothing = (BUCKETS, BUCKETS)  # `itemgetter` wants two at least; the last weight stays 0
    picks = [itemgetter(*buckets, *nothing) for buckets, _ in seen]
    for _ in range(_EPOCHS):
        dice.shuffle(order)
        for at in order:
            (buckets, share), (_, answer, weight) = seen[at], rows[at]
            error = chance(bias + share * sum(picks[at](weights))) - answer
            if abs(error) < _CLOSE_ENOUGH:
                continue
            error *= weight
            bias -= 0.05 * error
            slope = error * share
            square, step = slope * slope, _RATE * slope
            for feature in buckets:
                squares[feature] = summed = squares[feature] + square
                weights[feature] -= step / root(summed)
    return _Fitted(array("f", weights[:-1]), bias)


def _fit_tiers(edits: Sequence[_Edit], given: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Fit the model of the tiers in the same way, from what the others say of each edit."""
    weights: dict[str, list[float]] = {name: [0.0] * len(Tier) for each in given for name in each}
    squares = {name: [1e-8] * len(Tier) for name in weights}
    order, dice = list(range(len(edits))), random.Random(5)
    for _ in range(_TIER_EPOCHS):
        dice.shuffle(order)
        for at in order:
            chances = softmax(given[at], weights)
            for place, tier in enumerate(Tier):
                error = (chances[place] - (edits[at].tier is tier)) * edits[at].weight
                for name, value in given[at].items():
                    slope = error * value
                    squares[name][place] += slope * slope
                    weights[name][place] -= _RATE * slope / math.sqrt(squares[name][place])
    return {name: [round(weight, 4) for weight in each] for name, each in sorted(weights.items())}


def main(paths: Sequence[str]) -> None:
    """Train the shipped models from files of labelled prompts."""
    data = train(labelled(map(Path, paths)))
    (Path(__file__).parent / FILE).write_bytes(zlib.compress(data, 9))


if __name__ == "__main__":
    main(sys.argv[1:])
