"""A connection is made to a public address only."""

import socket
from contextlib import closing

import pytest

from gateway.errors import AddressRefusedError
from gateway.network import connect_public, public_socket


@pytest.mark.threat("B3", "B6")
def test_nothing_is_connected_to_an_address_that_is_not_public() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        for host in ("127.0.0.1", "localhost", "127.1", "::ffff:127.0.0.1"):
            with pytest.raises(AddressRefusedError):
                connect_public(host, port, timeout_seconds=1)
        with pytest.raises(TimeoutError):
            server.accept()


def test_a_socket_is_opened_for_a_public_address_only() -> None:
    info = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
    with closing(public_socket((*info, ("1.1.1.1", 443)))) as opened:
        assert opened.family == socket.AF_INET
    with pytest.raises(AddressRefusedError):
        public_socket((*info, ("10.0.0.1", 443)))
