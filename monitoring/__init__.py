"""Keep the record, and everything that is read from it."""
