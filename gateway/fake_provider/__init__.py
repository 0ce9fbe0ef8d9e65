"""The fake provider: a Messages-API server that plays scenario files, so that everything runs without a key."""
