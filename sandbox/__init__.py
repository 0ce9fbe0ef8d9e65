"""Hold site files, and the walls around whatever touches them."""
