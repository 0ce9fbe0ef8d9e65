"""What each side of a connection to the ledger is told about another that vanished without a word."""

import re

from ledger.store import SILENCE, SILENT_CLIENT
from routing.policy.platform import platform_policy


def settings() -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"-c (\w+)=(\d+)", SILENT_CLIENT)}


def test_the_locks_of_a_worker_that_vanished_are_free_before_its_lease_has_run_out() -> None:
    told = settings()
    silent = told["tcp_keepalives_idle"] + told["tcp_keepalives_interval"] * told["tcp_keepalives_count"]
    lease = platform_policy().attempts.lease_seconds
    assert silent < lease, "in an open transaction: nothing is under way to it"
    assert told["tcp_user_timeout"] / 1000 < lease, "while an answer is under way to it"


def test_a_client_gives_up_a_ledger_that_vanished_within_half_a_minute() -> None:
    silent = SILENCE["keepalives_idle"] + SILENCE["keepalives_interval"] * SILENCE["keepalives_count"]
    assert silent <= 30
    assert SILENCE["tcp_user_timeout"] <= 30_000
