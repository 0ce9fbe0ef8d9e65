"""Where a decided job goes first: straight to its queue, or to intake because a model has a say or a debate is due."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from routing.assist import wants_assist
from routing.jobs import State
from routing.planning import Debate
from routing.policy import Policy
from routing.queues import QueueName
from routing.router import Lane, Route
from routing.soft import is_hard_routing, wants_soft
from routing.vocabulary import Vocabulary

HARD_ROUTING = "ENABLE_HARD_ROUTING"
INTENT_CLASSIFIER = "INTENT_CLASSIFIER"
"""Names that seeds 002 and 003 give these switches; they are read for every decision, so a change holds at once."""


def switches_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the switches alone, as they are now: nothing else of an environment travels with a decision."""
    return {name: environment[name] for name in (HARD_ROUTING, INTENT_CLASSIFIER) if name in environment}


class RouteRules(NamedTuple):
    """What an installation decides a route by, beside its policy."""

    switches: Mapping[str, str]
    vocabulary: Vocabulary
    """The words to look for."""


class Stage(NamedTuple):
    """A state to wait in, and the queue to wait on."""

    state: State
    queue: QueueName


def is_soft(route: Route, environment: Mapping[str, str]) -> bool:
    """Tell whether the soft router decides this request's mode (R-098, A33)."""
    return not is_hard_routing(environment.get(HARD_ROUTING)) and wants_soft(route)


def asks_intent_always(environment: Mapping[str, str]) -> bool:
    """Tell whether seed 003's literal reading is switched on: a model is asked for every intent."""
    return environment.get(INTENT_CLASSIFIER) == "always"


def work_queue(route: Route) -> QueueName:
    """Return the queue on which a routed job waits for its work: a run is taken forward on `control`, step by step."""
    return QueueName.CONTROL if route.lane is Lane.TICKET and not route.trivial else route.queue


def first_stage(route: Route, policy: Policy, *, environment: Mapping[str, str]) -> Stage:
    """Return where a job waits first. What needs no model never waits on intake.

    Args:
        route: the rules' decision, stored before any model is called.
        policy: says whether V2 is switched on.
        environment: holds the switches of seeds 002 and 003.
    """
    always = asks_intent_always(environment)
    if is_soft(route, environment) or wants_assist(route, enabled=policy.assist.enabled, intent_always=always):
        return Stage(State.RECEIVED, QueueName.INTAKE)
    if route.debate is Debate.PLANNING:
        return Stage(State.DEBATING, QueueName.INTAKE)
    return Stage(State.QUEUED, work_queue(route))
