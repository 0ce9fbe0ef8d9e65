"""The gateway: the one process through which every model call goes, and the one meter of money."""
