"""What HTTP, CLI and console have in common."""
