"""tests/unit/workers/runs/git"""
