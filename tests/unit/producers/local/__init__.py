"""tests/unit/producers/local"""
