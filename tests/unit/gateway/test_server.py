"""Where a gateway listens: on its own address, and for boxes on one that may come and go."""

import socket

from gateway.config import GatewayConfig
from gateway.server import listeners, server_config
from routing.policy.platform import platform_policy

NOT_HERE = "192.0.2.7"
"""For documentation (RFC 5737): no machine has it."""


def opened(config: GatewayConfig) -> list[socket.socket] | None:
    return listeners(config, server_config(config, "postgresql://", platform_policy()))


def test_without_boxes_the_server_opens_its_own_address() -> None:
    assert opened(GatewayConfig(pepper="p" * 32)) is None


def test_an_address_that_is_away_with_its_engine_keeps_no_gateway_from_starting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    found = opened(GatewayConfig(port=port, box_host=NOT_HERE, pepper="p" * 32))
    assert found is not None
    assert [listener.getsockname() for listener in found] == [("127.0.0.1", port), (NOT_HERE, port)]
    for listener in found:
        listener.close()
