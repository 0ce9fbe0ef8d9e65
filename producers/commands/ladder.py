"""`pointsman ladder`: decisions of the ladder over recorded messages, offline."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from producers.commands.context import USAGE, fail

app = typer.Typer()


@app.command()
def ladder(
    batch: Annotated[Path, typer.Option(help="A JSON-lines file of clarification replies; prints a decision a line.")],
) -> None:
    """Decide what replies to open clarifications mean: offline, with the model's answers given on the lines."""
    from routing.ladder_batch import ladder_line

    try:
        text = batch.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"ladder: {batch}: {error.strerror if isinstance(error, OSError) else 'not UTF-8'}", code=USAGE)
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            recorded = json.loads(line)
            if not isinstance(recorded, dict):
                fail(f"ladder: {batch}, line {number}: not an object", code=USAGE)
            sys.stdout.write(json.dumps(ladder_line(recorded), ensure_ascii=False) + "\n")
        except KeyError as error:
            fail(f"ladder: {batch}, line {number}: the field {error} is missing", code=USAGE)
        except (ValueError, TypeError, AttributeError) as error:
            fail(f"ladder: {batch}, line {number}: {error}", code=USAGE)
