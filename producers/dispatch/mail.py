"""Send notices by e-mail: plain text with a link, over an encrypted connection to one SMTP server (issue 21)."""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Sequence
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime

from gateway.network import authorities
from producers.config import MailConfig


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


def send(config: MailConfig, mail: EmailMessage, *, seconds: float) -> int:
    """Hand a message to the SMTP server, and return how many of its recipients that refused; not all.

    Args:
        config: the server.
        mail: the message.
        seconds: the longest that each step may take.

    Raises:
        OSError, smtplib.SMTPException: the server's fault, or the network's; a certificate that is not trusted too.
    """
    name = _domain_of(config.sender)
    if config.security == "tls":
        server: smtplib.SMTP = smtplib.SMTP_SSL(
            config.host, config.port, local_hostname=name, timeout=seconds, context=_trusted(config)
        )
    else:
        server = smtplib.SMTP(config.host, config.port, local_hostname=name, timeout=seconds)
    with server:
        if config.security == "starttls":
            server.starttls(context=_trusted(config))
        if config.username:
            server.login(config.username, config.password.get_secret_value())
        return len(server.send_message(mail))


def is_silence(error: Exception) -> bool:
    """Whether the server gave no answer at all."""
    return not isinstance(error, smtplib.SMTPException | ssl.SSLError) or isinstance(
        error, smtplib.SMTPServerDisconnected
    )


def _trusted(config: MailConfig) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=config.authorities) if config.authorities else authorities()


def _domain_of(address: str) -> str:
    return address.rpartition("@")[2]
