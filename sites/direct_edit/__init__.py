"""The direct edit's grammar: each module holds the rules for one kind of change."""
