"""The registry of components. It finds them by looking into `components/`: a new component is a new file there (H-125)."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from sandbox.spec import components as package
from sandbox.spec.component import Component


@cache
def components() -> Mapping[str, Component]:
    """Return all components by name, sorted."""
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    found = [module.COMPONENT for module in modules if isinstance(getattr(module, "COMPONENT", None), Component)]
    return MappingProxyType({component.name: component for component in sorted(found, key=lambda entry: entry.name)})
