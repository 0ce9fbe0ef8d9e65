"""Where tickets come from, files and trackers, and how their owners hear what became of them."""
