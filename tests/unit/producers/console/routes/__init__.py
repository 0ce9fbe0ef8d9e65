"""tests/unit/producers/console/routes"""
