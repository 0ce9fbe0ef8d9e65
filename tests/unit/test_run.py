"""What is run, and in which order, follows rules and no list of files that somebody would have to keep."""

from pathlib import Path

from tests.order import BOXES, INSTALLATION, ON_INSTALLATION, ORDER, is_quick, place_of

ROOT = Path(__file__).parents[2]


def test_every_place_in_the_order_exists() -> None:
    assert [start for start in ORDER if start != INSTALLATION and not (ROOT / start).is_dir()] == []
    assert [file for file in sorted(ON_INSTALLATION) if not (ROOT / file).is_file()] == []


def test_boxes_and_the_installation_come_first_and_unit_tests_last() -> None:
    names = [
        "tests/unit/test_run.py::test_x",
        *ON_INSTALLATION,
        f"{BOXES}test_wall.py::test_x",
        "tests/integration/a.py",
    ]
    ordered = sorted(names, key=place_of)
    assert ordered[0].startswith(BOXES)
    assert set(ordered[1:-2]) == ON_INSTALLATION
    assert ordered[-2:] == ["tests/integration/a.py", "tests/unit/test_run.py::test_x"]


def test_the_quick_part_has_all_unit_tests_and_one_of_each_other_file_but_none_that_is_slow() -> None:
    files: set[str] = set()
    unit, integration = "tests/unit/a.py::test", "tests/integration/a.py::test"
    names = [f"{unit}_1", f"{unit}_2", f"{integration}_slow", f"{integration}_1", f"{integration}_2"]
    quick = [name for name in names if is_quick(name, is_slow="slow" in name, files=files)]
    assert quick == [f"{unit}_1", f"{unit}_2", f"{integration}_1"]
