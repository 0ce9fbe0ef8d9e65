"""How many workers a load needs, and what gives out next."""
