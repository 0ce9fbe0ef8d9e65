"""tests/unit/producers/commands"""
