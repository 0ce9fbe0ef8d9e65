"""tests/chaos/skewed"""
