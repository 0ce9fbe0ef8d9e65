"""What a run does next: pure functions from the ledger's facts to the next move."""
