"""A mirror inside a test's own process."""

from __future__ import annotations

from contextlib import AbstractContextManager

from routing.policy import Policy
from sandbox.mirror.config import MirrorConfig
from sandbox.mirror.registries import Registries
from sandbox.mirror.serve import server_config
from sandbox.threaded import running


def running_mirror(
    config: MirrorConfig, ledger_url: str, policy: Policy, registries: Registries
) -> AbstractContextManager[str]:
    """Serve in a thread for as long as the context is open; it gives the base URL."""
    return running(server_config(config, ledger_url, policy, registries), name="mirror")
