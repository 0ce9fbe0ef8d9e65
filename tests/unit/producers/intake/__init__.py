"""tests/unit/producers/intake"""
