"""What services leave of a box."""

import pytest

from routing.policy.platform import platform_policy
from routing.policy.services import ProjectService, services_of
from sandbox.box_spec import BoxLimits, beside
from sandbox.errors import SandboxUnavailableError


def test_services_are_taken_out_of_the_box_and_never_more_than_half_of_it() -> None:
    asked = {"cache": ProjectService(image="redis"), "db": ProjectService(image="postgresql")}
    services = services_of(asked, platform_policy().runs.services)
    left = beside(BoxLimits(), services)
    assert (left.memory_bytes >> 20, left.cpus, left.processes) == (2048 - 256 - 128, 1.0, 256 - 128)
    assert left.workspace_bytes == BoxLimits().workspace_bytes
    with pytest.raises(SandboxUnavailableError, match=r"services_too_large: .*more than half of its cpus"):
        beside(BoxLimits(cpus=1.9), services)
