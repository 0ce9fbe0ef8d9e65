"""Ask the owner what a job lacks, and resolve the reply."""
