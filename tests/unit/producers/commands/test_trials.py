"""How the trial of a proposed command is told."""

from collections.abc import Iterator

import pytest

from producers.commands.trials import try_in
from sandbox.box_spec import BoxSpec, Target
from sandbox.local_box import LocalBox


@pytest.fixture
def box() -> Iterator[LocalBox]:
    box = LocalBox(BoxSpec(image="", gateway=Target("", 1)))
    yield box
    box.close()


@pytest.mark.parametrize("noisy", [1, 2])
def test_what_a_failed_command_said_last_is_kept_of_each_of_its_outputs(box: LocalBox, noisy: int) -> None:
    command = f"for n in $(seq 20); do echo warning $n >&{noisy}; done; echo '300 != 301' >&{3 - noisy}; exit 1"
    trial = try_in(box, "test", command, seconds=10)
    warnings = [f"warning {number}" for number in range(6, 21)]
    assert trial.result == "failed with status 1"
    assert trial.tail.splitlines() == ([*warnings, "300 != 301"] if noisy == 1 else ["300 != 301", *warnings])
