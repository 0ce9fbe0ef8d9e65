"""Reads YAML in a tenth of the time where PyYAML was built with libyaml, as its wheels are."""

from typing import Any

import yaml

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(text: str | bytes) -> Any:
    """Return what a YAML document holds.

    Raises:
        yaml.YAMLError: it is none.
    """
    return yaml.load(text, Loader=LOADER)
