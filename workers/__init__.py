"""Do the work that the queues carry, under each tier's limits."""
