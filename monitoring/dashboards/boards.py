"""The six dashboards of an installation."""

from __future__ import annotations

from monitoring.dashboards.cost import COST
from monitoring.dashboards.fleet import FLEET, QUEUE
from monitoring.dashboards.panels import Board
from monitoring.dashboards.routing import ROUTING
from monitoring.dashboards.work import RUNS, SANDBOX

BOARDS: tuple[Board, ...] = (FLEET, QUEUE, COST, ROUTING, SANDBOX, RUNS)
