"""People hear by e-mail, over TLS to a real SMTP server, that a job waits for them, and never a word of the job."""

import email.policy
import socketserver
import ssl
import threading
from collections.abc import Iterator
from email.message import EmailMessage
from email.parser import BytesParser
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from producers.config import MailConfig, WebhookConfig
from producers.dispatch.webhooks import RETRY_SECONDS, WebhookSender
from producers.errors import InvalidInputError
from producers.use_cases.notices import NoticeChoice, Notices
from routing.policy.platform import Webhooks
from tests.factories import Shop
from tests.integration.dispatch.test_notices import offer, only
from tests.integration.dispatch.test_webhooks import SECRET
from tests.tls import Authority

PASSWORD = "the-password-of-the-relay"
PEOPLE = ["ann@example.org", "bob@example.org"]


class _Session(socketserver.StreamRequestHandler):
    """One connection, as RFC 5321, 3207 and 4954 have it, as far as a client needs."""

    server: "Relay"
    hidden: ssl.SSLSocket | None = None

    def say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())

    def finish(self) -> None:
        super().finish()
        if self.hidden is not None:
            self.hidden.close()

    def handle(self) -> None:
        self.say("220 relay")
        while line := self.rfile.readline().decode().strip():
            verb = line.split(":")[0].split(" ")[0].upper()
            self.server.lines.append(line)
            if verb == "STARTTLS" and not self.hide():
                return
            if verb == "MAIL":
                while self.server.is_slow and not self.server.is_over.wait(0.05):
                    self.wfile.write(b"250-wait\r\n")
            if verb == "DATA" and not self.server.busy:
                self.take()
            elif verb != "STARTTLS":
                self.say(self.answer(verb, line))

    def answer(self, verb: str, line: str) -> str:
        match verb:
            case "EHLO":
                return "250-relay\r\n250-AUTH PLAIN\r\n250 STARTTLS"
            case "AUTH":
                return "538 not in the open" if self.hidden is None else "235 yes"
            case "RCPT" if any(one in line for one in self.server.unknown):
                return "550 nobody here"
            case "DATA":
                return "451 later"
            case "QUIT":
                return "221 bye" if self.server.is_polite else "421 too many"
        return "250 yes"

    def hide(self) -> bool:
        self.say("220 go on")
        try:
            self.hidden = self.server.context.wrap_socket(self.connection, server_side=True)
        except (ssl.SSLError, OSError):
            return False
        self.rfile, self.wfile = self.hidden.makefile("rb"), self.hidden.makefile("wb", 0)  # type: ignore[assignment]
        return True

    def take(self) -> None:
        self.say("354 go on")
        data = b"".join(iter(self.rfile.readline, b".\r\n"))
        self.server.mails.append(BytesParser(policy=email.policy.default).parsebytes(data))  # type: ignore[arg-type]
        self.say("250 taken")


class Relay(socketserver.ThreadingTCPServer):
    """An SMTP server that keeps what it gets."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.context = context
        self.mails: list[EmailMessage] = []
        self.lines: list[str] = []
        self.busy = self.is_slow = False
        self.is_polite = True
        self.is_over = threading.Event()
        self.unknown: tuple[str, ...] = ()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def relay(authority: Authority) -> Iterator[Relay]:
    with Relay(authority.context_for("localhost")) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield server
        server.is_over.set()
        server.shutdown()


def deliver(
    shop: Shop, relay: Relay | None, authority: Authority, *, rules: Webhooks | None = None, **settings: Any
) -> int:
    facts = {"host": "localhost", "port": relay.server_address[1]} if relay is not None else {}
    mail = MailConfig(
        **{
            **facts,
            "authorities": authority.path,
            "username": "pointsman",
            "password": SecretStr(PASSWORD),
            "sender": "edits@pointsman.example",
            **settings,
        }
    )
    config = WebhookConfig(secret=SecretStr(SECRET), allow_private=True)
    url = "https://edits.example/console"
    return WebhookSender(shop.ledger, config, rules or Webhooks(), console_url=url, mail=mail).deliver_due()


def choose(shop: Shop, *people: str) -> Notices:
    notices = Notices(shop.ledger)
    choice = NoticeChoice.model_validate({"states": ["awaiting_approval"], "mail_to": people})
    notices.choose(choice, tenant="acme", allow_private=True, actor="key:acme/k")
    return notices


def offered(shop: Shop) -> Notices:
    """Return the notices of a tenant whose people a job waits for."""
    shop.tenant()
    notices = choose(shop, *PEOPLE)
    offer(shop, None)
    return notices


def test_who_is_waited_for_gets_plain_text_and_a_link_over_tls_and_nothing_that_a_person_wrote(
    shop: Shop, relay: Relay, authority: Authority
) -> None:
    shop.tenant()
    notices = choose(shop, *PEOPLE)
    job_id = offer(shop, None)
    assert deliver(shop, relay, authority) == 1
    assert deliver(shop, relay, authority) == 0
    (mail,) = relay.mails
    assert (mail["From"], mail["To"]) == ("edits@pointsman.example", ", ".join(PEOPLE))
    assert mail["Subject"] == "Pointsman: a job on site shop waits for your approval"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail.get_content_type() == "text/plain"
    assert mail.get_content().split() == [
        *["Pointsman:", "a", "job", "on", "site", "shop", "waits", "for", "your", "approval."],
        f"https://edits.example/console/jobs/{job_id}",
    ]
    assert "say hello" not in mail.as_string()
    starts = [line.split()[0].upper() for line in relay.lines]
    assert starts.index("STARTTLS") < starts.index("AUTH") < starts.index("DATA")
    view = only(notices)
    assert (view.channel, view.state, view.deliveries[0].outcome) == ("mail", "delivered", "delivered")
    assert notices.choice("acme").mail_to == PEOPLE
    assert PASSWORD not in view.model_dump_json()


def test_a_server_whose_certificate_is_not_trusted_gets_neither_password_nor_message(
    shop: Shop, relay: Relay, authority: Authority, tmp_path: Path
) -> None:
    notices = offered(shop)
    deliver(shop, relay, authority, authorities=Authority(tmp_path, "other").path)
    assert only(notices).deliveries[0].detail == "SSLCertVerificationError"
    assert {line.split()[0].upper() for line in relay.lines} == {"EHLO", "STARTTLS"}


def test_a_busy_server_is_tried_again_under_the_same_id_and_given_up_on_record(
    shop: Shop, relay: Relay, authority: Authority
) -> None:
    notices = offered(shop)
    relay.busy = True
    for _ in range(len(RETRY_SECONDS) + 1):
        shop.execute("UPDATE notice SET next_at = now() WHERE next_at IS NOT NULL")
        deliver(shop, relay, authority)
    (view,) = notices.find("acme", wanted="undelivered").notices
    assert (len(view.deliveries), view.deliveries[0].status) == (len(RETRY_SECONDS) + 1, 451)
    relay.busy, relay.unknown = False, ("bob@",)
    notices.replay(view.id, tenant="acme", actor="cli")
    assert deliver(shop, relay, authority) == 1
    assert relay.mails[0]["Message-ID"] == f"<{view.message_id}@pointsman.example>"
    last = only(notices).deliveries[-1]
    assert (last.outcome, last.detail) == ("delivered", "not to 1 of the addresses")


def test_a_message_that_was_taken_is_not_sent_again_for_the_server_s_goodbye(
    shop: Shop, relay: Relay, authority: Authority
) -> None:
    notices = offered(shop)
    relay.is_polite = False
    assert deliver(shop, relay, authority) == 1
    assert (only(notices).deliveries[0].outcome, len(relay.mails)) == ("delivered", 1)


def test_a_server_that_answers_for_ever_is_left_in_time(shop: Shop, relay: Relay, authority: Authority) -> None:
    notices = offered(shop)
    relay.is_slow = True
    deliver(shop, relay, authority, rules=Webhooks(seconds=0.5))
    (tried,) = notices.find("acme").notices[0].deliveries
    assert (tried.outcome, tried.detail) == ("failed", "TimeoutError")
    assert tried.seconds < 3


def test_without_a_server_it_is_refused_on_record(shop: Shop, authority: Authority) -> None:
    notices = offered(shop)
    deliver(shop, None, authority)
    assert (only(notices).deliveries[0].outcome, only(notices).deliveries[0].detail) == (
        "refused",
        "there is no SMTP server",
    )


@pytest.mark.parametrize(
    "address",
    [
        "ann@example.org\r\nBcc: eve@example.org",
        "ann@example.org\n",
        "ann@example.org,eve@example.org",
        '"ann"@example.org',
        "Ann <ann@example.org>",
        "ann@localhost",
        "änn@example.org",
        "",
    ],
)
def test_an_address_that_could_be_more_than_one_is_refused_by_name(shop: Shop, address: str) -> None:
    shop.tenant()
    with pytest.raises(InvalidInputError, match="mail_to"):
        choose(shop, address)


def test_a_password_is_never_set_to_go_over_the_network_as_it_is() -> None:
    with pytest.raises(ValidationError, match="username needs security"):
        MailConfig(host="relay.example", username="pointsman", security="none")
