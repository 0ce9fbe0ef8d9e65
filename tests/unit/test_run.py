"""What the suite is told about its own files is true."""

from pathlib import Path

from tests.order import LONGEST_FIRST, ON_INSTALLATION, place_of
from tests.run import quick

ROOT = Path(__file__).parents[2]


def test_every_file_that_is_named_for_its_length_exists() -> None:
    names = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert [name for name in LONGEST_FIRST if name not in names] == []
    assert [file for file in sorted(ON_INSTALLATION) if not (ROOT / file).is_file()] == []
    assert len(set(LONGEST_FIRST)) == len(LONGEST_FIRST)
    assert place_of(LONGEST_FIRST[0]) == 0 < place_of("test_short.py")


def test_the_quick_part_has_all_unit_tests_and_most_of_integration() -> None:
    left_out = {ROOT / argument.removeprefix("--ignore=") for argument in quick() if argument.startswith("--ignore=")}
    short, long = [], []
    for path in (ROOT / "tests" / "integration").glob("test_*.py"):
        (long if path in left_out else short).append(path.name)
    assert set(long) <= set(LONGEST_FIRST)
    assert len(long) > 10
    assert len(short) > len(long)
    assert [argument for argument in quick() if argument.startswith("tests/")] == ["tests/unit", "tests/integration"]
