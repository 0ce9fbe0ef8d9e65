"""tests/unit/producers/doctor"""
