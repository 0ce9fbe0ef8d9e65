"""tests/unit/producers/use_cases"""
