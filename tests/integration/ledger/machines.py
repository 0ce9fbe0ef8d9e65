"""Random walks over a real ledger: the same ones each time, as many as `MACHINE_EXAMPLES` says if it does."""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.factories import Shop

ASKED = os.environ.get("MACHINE_EXAMPLES")
PHASES = (Phase.generate,) if ASKED is None else (Phase.generate, Phase.shrink)
"""A failure is made small only where somebody looks for one: that takes minutes on a real ledger."""
bounded = pytest.mark.timeout(0 if ASKED else 160)


class Machine(RuleBasedStateMachine):
    """What is done to a ledger, and what has to hold of it after each step."""

    shop: Shop

    @classmethod
    def walk(cls, shop: Shop, *, times: int) -> None:
        cls.shop = shop
        chosen = settings(
            max_examples=int(ASKED or times),
            stateful_step_count=30,
            suppress_health_check=list(HealthCheck),
            phases=PHASES,
        )
        run_state_machine_as_test(cls, settings=chosen)
