"""tests/unit/workers/runs/runners"""
