"""tests/unit/ledger"""
