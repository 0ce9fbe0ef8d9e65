"""Libraries that one file of tests needs, and whose import would cost each process of the suite a second."""

from importlib import import_module
from typing import Any


class Lazy:
    """A module that is imported when a class of it is used; what pytest asks of every name in a file is no class."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if not name[0].isupper():
            raise AttributeError(name)
        return getattr(import_module(self._name), name)
