"""A message that leaves a file behind when somebody unpickles it, and somebody who does.

That a file is not there shows nothing by itself: the same message has to spring where pickle is accepted.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
from pathlib import Path
from typing import Any
from uuid import uuid4

from kombu import Connection

PICKLE = "application/x-python-serialize"


class Bait:
    """One such message, for a task and the list that it stands on."""

    def __init__(self, directory: Path, *, task: str, queue: str) -> None:
        self.trace = directory / "unpickled"
        self._queue = queue
        self.body = pickle.dumps(self)
        self.raw = json.dumps(
            {
                "body": base64.b64encode(self.body).decode(),
                "content-type": PICKLE,
                "content-encoding": "binary",
                "headers": {"task": task, "id": str(uuid4())},
                "properties": {
                    "body_encoding": "base64",
                    "delivery_tag": str(uuid4()),
                    "delivery_info": {"exchange": "", "routing_key": queue},
                },
            }
        )

    def __reduce__(self) -> Any:
        return os.makedirs, (str(self.trace), 0o700, True)

    def springs(self, broker_url: str) -> bool:
        """Let a consumer that accepts pickle read this very message, and put the bait back as it was."""
        with Connection(broker_url) as connection:
            connection.default_channel.client.lpush(self._queue, self.raw)
            queue = connection.SimpleQueue(self._queue, no_ack=True, accept=["pickle"])
            _ = queue.get(timeout=10).payload
            queue.close()
        is_sprung = self.trace.exists()
        if is_sprung:
            self.trace.rmdir()
        return is_sprung
