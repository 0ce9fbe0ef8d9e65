"""The image that every box is made from, and how it is built."""
