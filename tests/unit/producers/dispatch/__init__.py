"""tests/unit/producers/dispatch"""
