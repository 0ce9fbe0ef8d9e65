"""A Celery application whose task asks a model and waits for what it says: what any fleet of them does all day."""

from __future__ import annotations

import os

import anthropic
from celery import Celery

app = Celery("waiting", broker=os.environ["BENCH_BROKER"])
app.conf.task_ignore_result = True


@app.task(name="ask")
def ask(number: int) -> str:
    """Ask, with a client of the task's own."""
    client = anthropic.Anthropic(base_url=os.environ["BENCH_MODEL"], api_key="sk-bench", max_retries=0)
    question = {"role": "user", "content": f"Explain how bread number {number} rises"}
    return client.messages.create(model="claude-haiku-4-5", max_tokens=1500, messages=[question]).id
