"""The commands of `pointsman`, by what they are about."""
