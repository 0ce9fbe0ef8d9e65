"""How what another version of the product wrote is read: a broker's message, and what is stored in the ledger.

Fields are added within a version, with a default, and whoever does not know them leaves them out. A new version is for
a message that must not be read with an older one's eyes; but `schema_version`, `job_id` and `fence` mean the same in
every version, so a worker of any age can say which job it is that it has to leave to others.
"""

from __future__ import annotations

from typing import TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from routing.errors import UnknownMessageError
from routing.jobs import JobMessage

MESSAGE_VERSION = 1
"""The newest version that this code reads, and the one that it writes."""
StoredT = TypeVar("StoredT", bound=BaseModel)


class Envelope(BaseModel):
    """What every version of a message says in the same way."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: int = MESSAGE_VERSION
    job_id: UUID
    fence: int = Field(ge=0)


def read_message(body: object) -> JobMessage:
    """Read what the broker delivered.

    Raises:
        UnknownMessageError: nobody's fault: a newer version sent it; it names the job, which is left to others.
        ValidationError: the sender's fault: it is no message of ours.
    """
    envelope = Envelope.model_validate(body)
    if envelope.schema_version != MESSAGE_VERSION:
        raise UnknownMessageError(envelope.schema_version, envelope.job_id, envelope.fence)
    return JobMessage.model_validate(body)


def read_stored(model: type[StoredT], value: object) -> StoredT:
    """Read what a process of this version or of a neighbouring one has stored.

    Raises:
        ValidationError: our fault, or of whoever wrote to the ledger past us.
    """
    return model.model_validate(value, extra="ignore")
