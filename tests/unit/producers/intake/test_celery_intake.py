"""What becomes of a client's message, before a job is made of it."""

from __future__ import annotations

import base64
import json
from typing import NoReturn, cast
from uuid import uuid4

import pytest
from sqlalchemy.exc import OperationalError

from producers.errors import ElsewhereError
from producers.intake import celery_intake
from producers.intake.celery_intake import take_in
from producers.intake.celery_messages import read_message
from producers.intake.submit import Submitter


class Moving:
    """Writes for a tenant whose rows are closed."""

    def record_refusal(self, *_: object, **__: object) -> NoReturn:
        raise OperationalError("INSERT INTO job", {}, Exception("closed"))


def test_an_expired_message_of_a_tenant_that_moves_is_handed_on_or_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    body = base64.b64encode(json.dumps([[], {"prompt": "Bigger"}, {}]).encode()).decode()
    headers = {"task": "pointsman.submit", "id": str(uuid4()), "expires": "2020-01-01T00:00:00+00:00"}
    properties = {"body_encoding": "base64"}
    kinds = {"content-type": "application/json", "content-encoding": "utf-8"}
    message = read_message(json.dumps({"body": body, "headers": headers, "properties": properties, **kinds}).encode())
    monkeypatch.setattr(celery_intake, "is_closed_error", lambda _: True)
    submitter = cast("Submitter", Moving())
    take_in(message, submitter, tenant="acme", forward=lambda _: True)
    with pytest.raises(ElsewhereError):
        take_in(message, submitter, tenant="acme", forward=lambda _: False)
