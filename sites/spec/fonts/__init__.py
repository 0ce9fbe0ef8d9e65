"""The fonts that a theme may name, and the files of those that come with the builder."""
