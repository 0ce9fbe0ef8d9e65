"""Read a prompt: tokens, phrases of the vocabulary, and what each sentence does."""
