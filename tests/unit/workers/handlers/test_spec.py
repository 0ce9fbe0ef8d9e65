"""Tier 1 needs no container engine: it starts no process and opens no connection of its own (seed 000)."""

import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from routing.model_call import way_out
from routing.policy.platform import platform_policy
from routing.queues import Tier
from workers.attempt import Inputs
from workers.handlers.spec import decline

ROOT = Path(__file__).parents[4]
_WHOLE_TIER = """
import importlib.resources, sys
import workers.handlers.spec, workers.lifecycle, workers.settlement
from routing.model_call import way_out
from routing.policy.platform import platform_policy
from sites.scan.engine import scan
from sites.spec.model import parse_site
from sites.spec.render import render

seen = []
watched = ("subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "socket.connect")
sys.addaudithook(lambda event, arguments: seen.append(event) if event in watched else None)
text = (importlib.resources.files("producers.local.demo_site") / "site.json").read_text()
files = render(parse_site(text))
report = scan(files, platform_policy().profiles["default"], profile_name="default")
assert report.passed, report.findings
assert not seen, seen
assert not {"docker", "podman"} & set(sys.modules)
"""


@pytest.mark.req("H-088")
def test_the_limits_give_tier_one_no_container() -> None:
    limits = platform_policy().limits_of(Tier.SPEC)
    assert (limits.container, limits.network, limits.shell) == ("none", "none", "none")


@pytest.mark.slow
@pytest.mark.req("H-088", "H-119")
def test_building_and_scanning_a_site_starts_no_process_and_reaches_no_engine() -> None:
    done = subprocess.run([sys.executable, "-c", _WHOLE_TIER], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("way", ["answer", "ask", "cannot"])
@pytest.mark.parametrize("begun", [None, "an earlier round"])
def test_what_follows_an_edit_that_a_model_left_empty_travels_from_the_child_that_computes_it(
    way: str, begun: Any
) -> None:
    inputs = SimpleNamespace(begun=begun, files={"index.html": b"<p>"}, spec=None, may_ask=True)
    declined = decline(cast(Inputs, inputs), {way: "It is so already."}, to=Tier.PATCH)
    assert pickle.loads(pickle.dumps(declined)) == declined
    assert "It is so already." in repr(declined)


def test_an_answer_keeps_its_lines_and_a_question_is_one() -> None:
    """An owner asked for a little list of colours, and got it as one line (issue 20)."""
    text = "Fonts:\n- Georgia\n\n- Gill\x00 Sans\n"
    assert way_out({"answer": text}, "answer") == "Fonts:\n- Georgia\n- Gill Sans"
    assert way_out({"ask": text}, "ask") == "Fonts: - Georgia - Gill Sans"
