"""What is run, and in which order, follows rules and no list of files that somebody would have to keep."""

from pathlib import Path

from tests.order import BOXES, ENGINE, INSTALLATION, ON_ENGINE, ON_INSTALLATION, ORDER, place_of
from tests.run import CORE

ROOT = Path(__file__).parents[2]


def test_every_place_in_the_order_exists() -> None:
    assert [start for start in ORDER if start not in (ENGINE, INSTALLATION) and not (ROOT / start).is_dir()] == []
    assert [file for file in sorted(ON_ENGINE | ON_INSTALLATION) if not (ROOT / file).is_file()] == []
    folders = {f"tests/{path.parent.name}/" for path in ROOT.glob("tests/*/test_*.py")}
    assert folders <= {*ORDER}, "what has no place comes last"


def test_boxes_and_the_installation_come_first_and_unit_tests_last() -> None:
    names = [
        "tests/unit/test_run.py::test_x",
        *ON_INSTALLATION,
        f"{BOXES}test_canary.py::test_x",
        *ON_ENGINE,
        "tests/integration/a.py",
    ]
    ordered = sorted(names, key=place_of)
    engines = len(ON_ENGINE)
    assert set(ordered[:engines]) == ON_ENGINE
    assert ordered[engines].startswith(BOXES)
    assert set(ordered[engines + 1 : -2]) == ON_INSTALLATION
    assert ordered[-2:] == ["tests/integration/a.py", "tests/unit/test_run.py::test_x"]


def test_the_quick_part_names_tests_that_are_there() -> None:
    for test in CORE:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / "tests" / "integration" / file).read_text()
