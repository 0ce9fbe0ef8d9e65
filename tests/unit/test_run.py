"""What is run, and in which order, follows rules and no list of files that somebody would have to keep."""

from itertools import pairwise
from pathlib import Path

from tests.order import BOXES, FILLING, ON_ENGINE, ON_INSTALLATION, WAITING, in_order
from tests.run import CORE

ROOT = Path(__file__).parents[2]


def test_every_place_in_the_order_exists() -> None:
    folders = {*WAITING, FILLING, BOXES}
    assert [folder for folder in sorted(folders) if not (ROOT / folder).is_dir()] == []
    assert [file for file in sorted(ON_ENGINE | ON_INSTALLATION) if not (ROOT / file).is_file()] == []
    assert {f"tests/{path.parent.name}/" for path in ROOT.glob("tests/*/test_*.py")} <= folders


def test_chains_come_first_and_unit_tests_between_those_that_wait_and_after_them() -> None:
    waiting = [f"{folder}test_{number}.py" for folder in WAITING for number in range(5)]
    filling = [f"{FILLING}test_{number}.py" for number in range(100)]
    boxes = f"{BOXES}test_canary.py"
    ordered = in_order([*filling, *ON_INSTALLATION, boxes, *ON_ENGINE, *waiting])
    engines, chains = len(ON_ENGINE), len(ON_ENGINE) + 1 + len(ON_INSTALLATION)
    assert {*ordered[:engines]} == ON_ENGINE
    assert ordered[engines] == boxes
    assert {*ordered[engines + 1 : chains]} == ON_INSTALLATION
    mixed = ordered[chains:]
    assert [file for file in mixed if file in waiting] == waiting
    gaps = [later - earlier for earlier, later in pairwise(mixed.index(file) for file in waiting)]
    assert mixed[0] == waiting[0]
    assert max(gaps) - min(gaps) <= 1, "evenly"
    assert len(mixed) - mixed.index(waiting[-1]) > 2 * max(gaps)


def test_the_quick_part_names_tests_that_are_there() -> None:
    for test in CORE:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / "tests" / "integration" / file).read_text()
