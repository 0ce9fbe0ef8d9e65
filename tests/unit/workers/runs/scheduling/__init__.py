"""tests/unit/workers/runs/scheduling"""
