"""Dashboards as code: panels are values here, and one module turns them into what Grafana reads."""
