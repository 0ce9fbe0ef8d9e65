"""What travels and what is stored is read across versions."""

import json
from pathlib import Path
from uuid import UUID

import pytest
from pydantic import ValidationError

from routing.errors import UnknownMessageError
from routing.jobs import JobMessage, JobRequest
from routing.messages import MESSAGE_VERSION, read_message, read_stored

MESSAGES = Path(__file__).parents[2] / "data" / "messages"
JOB = UUID("7f1b9f3e-6f0e-4a0e-9a9e-2d8c1f6b7a10")


def test_every_version_of_a_message_that_was_ever_sent_and_this_reads_has_its_samples() -> None:
    assert [path.name for path in sorted(MESSAGES.glob("job_v*.json"))] == [
        f"job_v{version}.json" for version in range(1, MESSAGE_VERSION + 1)
    ]


@pytest.mark.parametrize("path", sorted(MESSAGES.glob("job_v*.json")), ids=lambda path: path.stem)
def test_messages_of_older_versions_are_read(path: Path) -> None:
    for body in json.loads(path.read_text()):
        assert read_message(body).job_id == JOB


def test_fields_that_are_added_later_are_left_out() -> None:
    body = {"schema_version": 1, "job_id": str(JOB), "fence": 4, "deadline": "x"}
    assert read_message(body) == JobMessage(job_id=JOB, fence=4)


def test_a_newer_version_is_refused_with_the_job_that_it_is_about() -> None:
    with pytest.raises(UnknownMessageError) as unread:
        read_message({"schema_version": 2, "job_id": str(JOB), "fence": 4, "more": []})
    assert (unread.value.version, unread.value.job_id, unread.value.fence) == (2, JOB, 4)


@pytest.mark.parametrize(
    "body", [None, [], {"schema_version": 2}, {"schema_version": "x", "job_id": str(JOB), "fence": 1}]
)
def test_what_is_no_message_is_refused(body: object) -> None:
    with pytest.raises(ValidationError):
        read_message(body)


def test_what_a_newer_process_stored_with_a_request_does_not_stop_an_older_one() -> None:
    stored = {"prompt": "p", "options": [{"id": "a", "label": "A", "colour": "red"}], "added_later": 1}
    assert read_stored(JobRequest, stored).options[0].id == "a"
