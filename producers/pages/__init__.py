"""The origin of the pages: previews and live pages, on a listener that serves nothing else."""
