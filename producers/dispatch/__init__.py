"""Keep the broker fed from the ledger, and deliver what ends owe."""
