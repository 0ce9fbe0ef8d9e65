from __future__ import annotations

from typing import Any

import pytest

from producers.intake.gitlab_webhooks import ISSUE
from producers.intake.withdrawals import taken_back

_SHOP, _LAB = {"repository": {"full_name": "a/shop"}}, {"project": {"path_with_namespace": "a/shop"}}
_OURS, _OTHER = {"name": "pointsman", "title": "pointsman"}, {"name": "css", "title": "css"}


@pytest.mark.parametrize(
    ("tracker", "event", "body", "key"),
    [
        ("github", "issues", {"action": "closed", "issue": {"number": 7}, **_SHOP}, "a/shop#7"),
        ("github", "issues", {"action": "unlabeled", "label": _OURS, "issue": {"number": 7}, **_SHOP}, "a/shop#7"),
        ("github", "issues", {"action": "unlabeled", "label": _OTHER, "issue": {"number": 7}}, None),
        ("github", "issues", {"action": "labeled", "label": _OURS, "issue": {"number": 7}}, None),
        ("github", "issue_comment", {"action": "deleted", "issue": {"number": 7}}, None),
        ("gitlab", ISSUE, {"object_attributes": {"iid": 7, "state": "closed"}, **_LAB}, "a/shop#7"),
        (
            "gitlab",
            ISSUE,
            {
                "object_attributes": {"iid": 7},
                "changes": {"labels": {"previous": [_OURS, _OTHER], "current": [_OTHER]}},
                **_LAB,
            },
            "a/shop#7",
        ),
        ("gitlab", ISSUE, {"object_attributes": {"iid": 7}, "changes": {"labels": {"previous": [_OTHER]}}}, None),
        ("gitlab", "Note Hook", {"object_attributes": {"iid": 7, "state": "closed"}}, None),
        ("linear", "", {"type": "Issue", "action": "update", "data": {"identifier": "SHOP-7", "labels": []}}, "SHOP-7"),
        ("linear", "", {"type": "Issue", "action": "remove", "data": {"identifier": "SHOP-7"}}, "SHOP-7"),
        ("linear", "", {"type": "Issue", "data": {"identifier": "SHOP-7", "labels": [_OURS]}}, None),
        ("linear", "", {"type": "Comment", "data": {"identifier": "SHOP-7"}}, None),
    ],
)
def test_an_issue_is_taken_back_by_its_end_and_by_the_loss_of_the_label(
    tracker: str, event: str, body: dict[str, Any], key: str | None
) -> None:
    assert taken_back(event, body, tracker=tracker, trigger="pointsman") == key
