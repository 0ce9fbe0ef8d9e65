from pathlib import Path

import pytest

from sandbox.changes import change_set
from sandbox.config import BoxConfig
from sandbox.den import Den


def test_what_changed_is_told_by_content_not_by_anybodys_word(tmp_path: Path) -> None:
    den = Den(tmp_path)
    before = den.put_tree({"same": b"1", "changed": b"1", "b/gone": b"1", "a/gone": b"1"})
    after = den.put_tree({"same": b"1", "changed": b"2", "new": b"1"})

    found = change_set(before, after)
    assert (found.added, found.changed, found.removed) == (("new",), ("changed",), ("a/gone", "b/gone"))
    assert not found.is_empty
    assert change_set(before, before).is_empty


@pytest.mark.parametrize(
    "fields",
    [
        {"subnets": "8.8.8.0/24"}, {"subnets": "10.0.0.0/28"}, {"install": "A B"}, {"install": ""},
        {"engine": "docker.sock"}, {"gateway_host": "evil.example"}, {"warm": -1}, {"base_image": "-x"}, {"nope": 1},
    ],
)  # fmt: skip
def test_a_setting_of_boxes_that_means_harm_or_nothing_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        BoxConfig(**fields)  # type: ignore[arg-type]
