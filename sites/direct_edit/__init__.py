"""Direct edits: requests so clear that a grammar carries them out, on specs and on plain HTML, without a model."""
