"""How many workers a load needs, and what gives out next: sized by a formula and by a simulation."""
