"""Take work in by three sources, one dispatcher, and the programs an operator starts."""
