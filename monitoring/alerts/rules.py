"""The alert rules as they ship with the product, and as Prometheus reads them."""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml

from monitoring.promql import once

_LINKS = {"runbook_url": "docs", "dashboard_url": "grafana"}


def shipped_rules() -> str:
    """Return rules.yaml as it ships."""
    return (resources.files("monitoring") / "alerts" / "rules.yaml").read_text()


def linked_rules(*, docs: str = "", grafana: str = "") -> str:
    """Return the rules as they are written for Prometheus: each series is counted once, and links are absolute.

    Args:
        docs: the URL below which the project's pages are; empty leaves links to runbooks relative.
        grafana: the URL of Grafana; empty leaves links to dashboards relative.
    """
    found: dict[str, Any] = yaml.safe_load(shipped_rules())
    bases = {"docs": docs, "grafana": grafana}
    for rule in (rule for group in found["groups"] for rule in group["rules"]):
        rule["expr"] = once(rule["expr"])
        for link, base in _LINKS.items():
            if bases[base] and "alert" in rule:
                rule["annotations"][link] = f"{bases[base].rstrip('/')}/{rule['annotations'][link].lstrip('/')}"
    return yaml.safe_dump(found, sort_keys=False, width=1000)
