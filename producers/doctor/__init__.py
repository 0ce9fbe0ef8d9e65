"""What an operator would look at before asking somebody: each part of an installation, and what to do about it."""
