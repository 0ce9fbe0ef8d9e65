"""Whom the package mirror of a trial serves."""

import asyncio

import pytest

from sandbox.errors import MirrorRefusedError
from sandbox.trial import OneBox


@pytest.mark.parametrize(
    ("address", "peer"), [("", None), ("", "172.18.0.2"), ("172.18.0.2", None), ("172.18.0.2", "172.18.0.3")]
)
def test_nobody_but_the_trial_s_own_box_gets_packages(address: str, peer: str | None) -> None:
    admission = OneBox()
    admission.address = address
    with pytest.raises(MirrorRefusedError, match="one box"):
        asyncio.run(admission.check({}, peer=peer))


def test_the_trial_s_own_box_is_known_by_its_forwarder_s_address() -> None:
    admission = OneBox()
    admission.address = "172.18.0.2"
    assert asyncio.run(admission.check({}, peer="::ffff:172.18.0.2")) == "172.18.0.2"
