"""TLS in front of a real server: an authority and certificates of a test's own, and a proxy that ends TLS.

The servers from the wheels are built without TLS. What is proven with them is the client's side: that every program
encrypts, and checks who answers. A proxy speaks TLS as Redis does, from the first byte, or as PostgreSQL does, after
the client asked for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_SSL_REQUEST = bytes.fromhex("0000000804d2162f")


class Authority:
    """Signs certificates for host names."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._sign(self._name, self._key, x509.BasicConstraints(ca=True, path_length=0))
        self.path = directory / f"{name}.pem"
        self.path.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def context_for(self, host: str) -> ssl.SSLContext:
        """Return what a server of this name uses."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        made = self._sign(subject, key, x509.SubjectAlternativeName([x509.DNSName(host)]))
        path = self._directory / f"{host}-{made.serial_number:x}.pem"
        path.write_bytes(
            made.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=subject,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - timedelta(hours=1),
            not_valid_after=now + timedelta(hours=1),
        )
        return builder.add_extension(extension, critical=False).sign(self._key, hashes.SHA256())


class TlsProxy:
    """Ends TLS in front of a server on this machine, in a thread of its own."""

    def __init__(self, target: int | str, context: ssl.SSLContext, *, is_postgres: bool = False) -> None:
        self._target = target
        self._context = context
        self._is_postgres = is_postgres
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._started = threading.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.connections = 0
        """How many spoke TLS to the end of its handshake."""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        context = None if self._is_postgres else self._context
        self._loop.set_exception_handler(lambda *_: None)  # a client that refuses our certificate is what is tested
        server = await asyncio.start_server(self._take, "127.0.0.1", 0, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stopping.wait()
        server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()  # closing would wait for the client's last word
        await asyncio.sleep(0)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
            if self._is_postgres:
                if await reader.readexactly(len(_SSL_REQUEST)) != _SSL_REQUEST:
                    writer.close()  # it would have gone on in the clear
                    return
                writer.write(b"S")
                await writer.start_tls(self._context)
            self.connections += 1
            if isinstance(self._target, str):
                inside = await asyncio.open_unix_connection(self._target)
            else:
                inside = await asyncio.open_connection("127.0.0.1", self._target)
            await asyncio.gather(_pump(reader, inside[1]), _pump(inside[0], writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
