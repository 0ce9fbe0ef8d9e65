"""What an installation hands on to those who decide."""

from contextlib import closing

import pytest

from producers.bootstrap import Installation, Settings
from routing.config import read_settings


@pytest.mark.req("L-125", "L-142", "R-079", "R-098")
def test_switches_of_the_environment_reach_whoever_decides_at_once() -> None:
    environment = {"ENABLE_HARD_ROUTING": "true"}
    settings = read_settings(Settings, {"POINTSMAN_LEDGER__URL": "postgresql://nobody@127.0.0.1:1/none"})
    with closing(Installation(settings, environment=lambda: environment)) as installation:
        deciding = (installation.submitter, installation.use_cases.clarifier)
        environment["ENABLE_HARD_ROUTING"] = "false"
        assert [each.environment()["ENABLE_HARD_ROUTING"] for each in deciding] == ["false", "false"]
