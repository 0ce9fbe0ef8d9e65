"""tests/unit/workers/handlers"""
