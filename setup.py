"""Compile what computes most to native code where NATIVE=1 asks for it, as `make native` does; else all is Python."""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import Extension, setup


def native() -> list[Extension]:
    """Return the extension modules; mypyc is a part of mypy, which building plain wheels does not need."""
    from mypyc.build import mypycify

    modules = sorted(str(path) for path in Path("sites/diff").glob("*.py"))
    return mypycify(modules, opt_level="1", debug_level="0")  # a higher level takes longer and gains nothing


setup(ext_modules=native() if os.environ.get("NATIVE") == "1" else [])
