"""Where tickets come from: files, and the webhooks of trackers."""
