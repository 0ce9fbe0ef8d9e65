"""The compose stack as tests bring it up: images from this machine's own packages, and a stack of its own."""
