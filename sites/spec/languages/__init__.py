"""Pages in several languages, and how a model translates their texts."""
