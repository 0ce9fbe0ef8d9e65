"""A gateway inside a test's own process."""

from __future__ import annotations

from contextlib import AbstractContextManager

from routing.policy import Policy
from sandbox.gateway.config import GatewayConfig
from sandbox.gateway.serve import server_config
from sandbox.threaded import running


def running_gateway(config: GatewayConfig, ledger_url: str, policy: Policy) -> AbstractContextManager[str]:
    """Serve in a thread for as long as the context is open; it gives the base URL."""
    server = server_config(config, ledger_url, policy)
    return running(server, name="gateway", grace_seconds=config.grace_seconds)
