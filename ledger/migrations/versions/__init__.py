"""ledger/migrations/versions"""
