"""tests/unit/ledger/operations"""
