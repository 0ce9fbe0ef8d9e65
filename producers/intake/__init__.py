"""Take jobs in: validate, decide, accept or refuse."""
