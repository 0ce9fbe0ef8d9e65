"""Take work in: three doors, one dispatcher, and the programs an operator starts."""
