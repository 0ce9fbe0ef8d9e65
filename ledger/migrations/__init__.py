"""ledger/migrations"""
