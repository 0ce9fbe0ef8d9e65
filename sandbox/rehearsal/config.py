"""What one rehearsal server is started with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Speed = Literal["real", "max"]


class RehearsalConfig(BaseModel):
    """Settings of `serve`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 0
    """0 takes a free one."""
    log: Path | None = None
    """File that each ended call is appended to."""
    speed: Speed = "real"
    """real: as the policy's `speeds` say; max: no pauses but those of a rule."""
    scenarios: tuple[Path, ...] = ()
    """Scenario files, or directories of them, that are played before the shipped ones."""
    faults: bool = False
    """Whether the shipped `faults.yaml` is played, too."""
    policy: Path | None = None
    """An installation's own policy; without one the shipped policy's speeds hold."""
