"""tests/unit/sites/repository"""
