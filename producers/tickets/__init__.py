"""Where tickets come from, and how their owners hear what became of them."""
