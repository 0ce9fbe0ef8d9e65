"""Send notices by e-mail: plain text with a link, over an encrypted connection to one SMTP server (issue 21)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime

import aiosmtplib

from gateway.network import authorities
from producers.config import MailConfig

_GOODBYE_SECONDS = 1.0


def mail_of(said: str, recipients: Sequence[str], *, sender: str, message_id: str, at: datetime) -> EmailMessage:
    """Return the message: the sentence that a chat gets, whose link is its last word.

    Args:
        said: the sentence; it names a site and a job and holds no text of a person or a model.
        recipients: addresses that need no quoting.
        sender: likewise.
        message_id: the same at each try, so that a mailbox can tell a message that came twice.
        at: when it was sent.

    Raises:
        ValueError: our fault: a header would hold a line break.
    """
    subject, _, link = said.rpartition(" ")
    mail = EmailMessage()
    mail["From"], mail["To"] = sender, ", ".join(recipients)
    mail["Subject"] = subject.rstrip(".")
    mail["Date"] = format_datetime(at)
    mail["Message-ID"] = f"<{message_id}@{_domain_of(sender)}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(f"{subject}\n\n{link}\n")
    return mail


async def send(config: MailConfig, mail: EmailMessage, *, seconds: float) -> int:
    """Hand a message to the SMTP server, and return how many of its recipients that refused; not all.

    A server that took the message and stumbles over the goodbye has it: nothing is sent again for that.

    Args:
        config: the server.
        mail: the message.
        seconds: the longest that all of it may take.

    Raises:
        OSError, aiosmtplib.SMTPException: the server's fault, or the network's; a certificate that is not trusted too.
    """
    client = aiosmtplib.SMTP(
        hostname=config.host,
        port=config.port,
        local_hostname=_domain_of(config.sender),
        username=config.username or None,
        password=config.password.get_secret_value() or None,
        use_tls=config.security == "tls",
        start_tls=config.security == "starttls",
        tls_context=None if config.security == "none" else _trusted(config),
        timeout=seconds,
    )
    transport: asyncio.BaseTransport | None = None
    try:
        async with asyncio.timeout(seconds):
            await client.connect()
            transport = client.transport
            refused, _ = await client.send_message(mail)
        with suppress(OSError, aiosmtplib.SMTPException):
            await client.quit(timeout=_GOODBYE_SECONDS)
        return len(refused)
    finally:
        client.close()
        if isinstance(transport, asyncio.WriteTransport):
            transport.abort()  # a TLS connection would wait half a minute for the server's goodbye


def is_silence(error: Exception) -> bool:
    """Whether the server gave no answer at all."""
    return isinstance(error, OSError) and not isinstance(error, ssl.SSLError | aiosmtplib.SMTPConnectResponseError)


def _trusted(config: MailConfig) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=config.authorities) if config.authorities else authorities()


def _domain_of(address: str) -> str:
    return address.rpartition("@")[2]
