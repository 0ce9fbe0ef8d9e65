"""The git repositories of runs: their objects as files, commits and bundles."""
