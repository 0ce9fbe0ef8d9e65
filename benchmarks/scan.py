"""What does it cost to scan a site? 1 MB of pages, styles and a script that passes all gates."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from benchmarks.environments import python_with
from benchmarks.inputs import site
from benchmarks.race import Peer, Race, calls_of, module
from routing.policy.platform import platform_policy
from sites.scan.engine import scan

_SECRETS = ("detect-secrets==1.5.0", "PyYAML==6.0.3", "requests==2.34.2")


def operation() -> Callable[[], object]:
    """Return what scans the site."""
    files, profile = site(), platform_policy().profiles["default"]
    report = scan(files, profile, profile_name="default")
    assert report.passed, report.findings[:5]
    turns = count()
    # under another key each time, so that no file is known to be clean
    return lambda: scan(files, profile, profile_name="default", known_keys=(f"benchmark key {next(turns)}",))


QUESTION = Race(
    name="scan",
    asks="A site of 1 MB through all gates of the scan",
    ours=module(__name__),
    peers=(
        Peer(
            "detect-secrets 1.5.0, which looks for secrets alone",
            module("benchmarks.peers.detect_secrets_scan", lambda: python_with(_SECRETS)),
            target=1,
        ),
    ),
    pairs=3,  # one turn of the peer takes ten seconds
    count_calls=calls_of(__name__),
)
