"""Provider keys that stand in files, as secret stores hand them out: read once, when a gateway starts."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import SecretStr

from sandbox.errors import SandboxError
from sandbox.gateway.config import GatewayConfig, ProviderConfig

_MAX_BYTES = 4096
_KEY = re.compile(r"[\x21-\x7e]+")
"""What a header can carry: printable ASCII without spaces."""


class KeyFileError(SandboxError, ValueError):
    """A provider's key cannot be read (the operator's fault); the message never holds what was read."""


def with_keys(config: GatewayConfig) -> GatewayConfig:
    """Return the configuration with every key in its place.

    Raises:
        KeyFileError: the operator's fault.
    """
    providers = {name: _with_key(name, provider) for name, provider in config.providers.items()}
    return config.model_copy(update={"providers": providers})


def _with_key(name: str, provider: ProviderConfig) -> ProviderConfig:
    key = provider.api_key.get_secret_value()
    if provider.api_key_file is not None:
        key = _read(name, provider.api_key_file)
    if not _KEY.fullmatch(key):
        raise KeyFileError(f"provider {name}: its key must be one line of printable ASCII without spaces")
    return provider.model_copy(update={"api_key": SecretStr(key), "api_key_file": None})


def _read(name: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES).decode("ascii").strip()
    except OSError as error:
        raise KeyFileError(f"provider {name}: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise KeyFileError(f"provider {name}: {path} holds no key: it is not ASCII") from None
