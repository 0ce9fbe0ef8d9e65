"""How the sections of a new site are laid out."""
