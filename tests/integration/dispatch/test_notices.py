"""A tenant hears that a job waits for a person where it chose to, once for each wait, and never a word of the job."""

from pathlib import Path
from uuid import UUID

import pytest
from pydantic import SecretStr
from standardwebhooks.webhooks import Webhook

from ledger.errors import NoticeNotFoundError
from ledger.job_control import reject
from ledger.store import Ledger
from producers.config import WebhookConfig
from producers.dispatch.webhooks import RETRY_SECONDS, WebhookSender
from producers.errors import InvalidInputError
from producers.use_cases.notices import NoticeChoice, Notices, NoticeView
from routing.policy.platform import Webhooks
from tests.factories import Shop
from tests.integration.api.http_world import PAGES, open_world, shared_ledger
from tests.integration.dispatch.test_webhooks import SECRET, Receiver, receiver, secret_of

__all__ = ["receiver", "shared_ledger"]
PROMPT = "say hello to <!channel> with pmk_secret"


def sender(shop: Shop) -> WebhookSender:
    config = WebhookConfig(secret=SecretStr(SECRET), allow_private=True)
    return WebhookSender(shop.ledger, config, Webhooks(), console_url="https://edits.example/console")


def choose(shop: Shop, *states: str, chat_url: str | None = None) -> Notices:
    notices = Notices(shop.ledger)
    choice = NoticeChoice.model_validate({"states": states, "chat_url": chat_url})
    notices.choose(choice, tenant="acme", allow_private=True, actor="key:acme/k")
    return notices


def offer(shop: Shop, url: str | None, *, site: str = "shop") -> UUID:
    """Let a job's preview wait for approval."""
    claimed = shop.running(site_id=shop.site(site), callback_url=url, prompt=PROMPT)
    shop.offer(claimed)
    return claimed.job.id


def only(notices: Notices) -> NoticeView:
    (view,) = notices.find("acme").notices
    return view


def test_a_receiver_hears_of_a_wait_only_if_its_tenant_asked_for_it(shop: Shop, receiver: Receiver) -> None:
    shop.tenant()
    offer(shop, receiver.url)
    assert sender(shop).deliver_due() == 0
    choose(shop, "clarifying")
    offer(shop, receiver.url, site="other")
    assert sender(shop).deliver_due() == 0


def test_a_wait_is_told_signed_under_an_id_of_its_own_and_the_end_after_it(shop: Shop, receiver: Receiver) -> None:
    shop.tenant()
    notices = choose(shop, "awaiting_approval")
    job_id = offer(shop, receiver.url)
    assert sender(shop).deliver_due() == 1
    ((headers, body),) = receiver.requests
    told = Webhook(secret_of("acme")).verify(body, headers)
    assert told == {
        "type": "job.awaiting_approval",
        "job_id": str(job_id),
        "state": "awaiting_approval",
        "site": "shop",
    }
    view = only(notices)
    assert (view.state, view.message_id, view.deliveries[0].outcome) == (
        "delivered",
        headers["webhook-id"],
        "delivered",
    )
    with shop.ledger.begin() as session:
        reject(session, job_id, actor="reviewer", reason="")
    assert sender(shop).deliver_due() == 1
    assert receiver.requests[1][0]["webhook-id"] == f"msg_{job_id}" != headers["webhook-id"]
    assert only(notices).state == "delivered"


def test_a_chat_gets_a_sentence_and_a_link_and_nothing_that_a_person_wrote(shop: Shop, receiver: Receiver) -> None:
    shop.tenant()
    notices = choose(shop, "awaiting_approval", chat_url=receiver.url + "/secret-part")
    job_id = offer(shop, None)
    assert sender(shop).deliver_due() == 1
    ((headers, body),) = receiver.requests
    assert body.decode() == (
        '{"text": "Pointsman: a job on site shop waits for your approval. '
        f'https://edits.example/console/jobs/{job_id}"}}'
    )
    assert "webhook-signature" not in headers
    shown = [notices.choice("acme").model_dump_json(), notices.find("acme").model_dump_json()]
    shown += [str(row) for row in shop.rows("SELECT detail FROM audit")]
    assert not [text for text in shown if "secret-part" in text]


def test_a_notice_is_tried_given_up_listed_and_sent_again_like_the_end(shop: Shop, receiver: Receiver) -> None:
    shop.tenant()
    notices = choose(shop, "awaiting_approval")
    receiver.status = 503
    offer(shop, receiver.url)
    for _ in range(len(RETRY_SECONDS) + 1):
        shop.execute("UPDATE notice SET next_at = now() WHERE next_at IS NOT NULL")
        sender(shop).deliver_due()
    (view,) = notices.find("acme", wanted="undelivered").notices
    assert (view.state, len(view.deliveries)) == ("undelivered", len(RETRY_SECONDS) + 1)
    with pytest.raises(NoticeNotFoundError):
        notices.replay(view.id, tenant="other", actor="cli")
    receiver.status = 200
    assert notices.replay(view.id, tenant="acme", actor="cli").state == "pending"
    assert sender(shop).deliver_due() == 1
    assert notices.find("acme", wanted="undelivered").notices == []
    assert len({(headers["webhook-id"], body) for headers, body in receiver.requests}) == 1


@pytest.mark.parametrize("url", ["ftp://chat.example/", "https://u:p@chat.example/", "https://x/" + "a" * 2_000, "x"])
def test_a_chat_that_cannot_be_called_is_refused_by_name(shop: Shop, url: str) -> None:
    shop.tenant()
    with pytest.raises(InvalidInputError, match="chat_url"):
        choose(shop, "clarifying", chat_url=url)


def test_a_question_that_is_asked_at_once_is_told_too(shared_ledger: Ledger, tmp_path: Path) -> None:
    with open_world(shared_ledger, tmp_path / "content-store") as world:
        for name in ("bakery", "cafe"):
            world.site(name, PAGES, tmp_path)
        world.call("PUT", "/v1/notice-choice", json={"states": ["clarifying"]})
        job_id = world.submit(prompt="Change the headline to 'Rye'", callback_url="https://hooks.example/acme")
        (told,) = world.call("GET", "/v1/notices").json()["notices"]
        assert told["payload"] == {"type": "job.clarifying", "job_id": str(job_id), "state": "clarifying"}
