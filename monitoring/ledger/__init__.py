"""The ledger: one PostgreSQL database that holds the state of every job, every dollar and every release."""
