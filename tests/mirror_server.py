"""A mirror inside a test's own process."""

from __future__ import annotations

from contextlib import AbstractContextManager

from routing.policy.platform import Policy
from sandbox.config import MirrorConfig
from sandbox.package_mirror.app import fleet_mirror, server_config
from sandbox.package_mirror.registries import Registries
from tests.threads import serve_in_thread


def running_mirror(
    config: MirrorConfig, ledger_url: str, policy: Policy, registries: Registries
) -> AbstractContextManager[str]:
    """Serve in a thread for as long as the context is open; it gives the base URL."""
    return serve_in_thread(server_config(config, fleet_mirror(config, ledger_url, policy, registries)), name="mirror")
