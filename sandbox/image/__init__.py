"""The image of every box, and how it is built."""
