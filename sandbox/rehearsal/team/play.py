"""One turn of an agent of a run: look, read, write, run, report, one tool use at a time."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.rehearsal.blocks import Block, Text, ToolUse
from sandbox.rehearsal.request import Request
from sandbox.rehearsal.team.hands import Done, Hands, hands_of
from sandbox.rehearsal.team.order import read_order
from sandbox.rehearsal.team.roles import role_of
from sandbox.rehearsal.team.scene import Result, Role, Scene

_MOST_READ = 8
_MOST_TURNS = 60
"""Whoever keeps refusing what is done here ends the play, not the other way round."""
_SILENT = "fail"
"""`[rehearse:fail=AGENT]`: this agent never hands in a result."""


def team_member(request: Request) -> Sequence[Block]:
    """Play the agent that the system prompt names."""
    order, hands = read_order(request), hands_of(request)
    role, done = role_of(order.agent), hands.done()
    scene = Scene(order, done.paths or (), done.texts, done.printed)
    if done.has_result or request.turn > _MOST_TURNS:
        return (Text("My step is done; the result says what came of it."),)
    if order.tags.get(_SILENT) == order.agent.replace(":", "-"):
        return (Text("I cannot make up my mind, so I leave it at that."),)
    forced = request.forced_tool
    use = None if forced and forced.name == "finish" else _next_use(role, scene, hands=hands, done=done)
    result = _honest(role.result(scene), done)
    use = use or hands.finish(result)
    return (use,) if use else (Text(str(result["summary"])),)


def _honest(result: Result, done: Done) -> Result:
    """Return a result that names only documents which were really written."""
    named = result.get("artifacts")
    return result if named is None else {**result, "artifacts": [path for path in named if path in done.kept]}


def _next_use(role: Role, scene: Scene, *, hands: Hands, done: Done) -> ToolUse | None:
    """Return what is still to be done before the report, or None."""
    if done.paths is None and (listing := hands.list()):
        return listing
    known = set(scene.paths)
    wanted = [path for path in dict.fromkeys(role.wants(scene)) if path in known][:_MOST_READ]
    for path in wanted:
        if path not in done.tried and (use := hands.read(path)):
            return use
    for path, content in role.writes(scene).items():
        if path not in done.written and (use := hands.write(path, content)):
            return use
    command = role.command(scene)
    return hands.run(command) if command and done.printed is None else None
