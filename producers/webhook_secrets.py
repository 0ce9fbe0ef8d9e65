"""The secrets that callbacks are signed with: each tenant's own, so that no receiver can pass for another's sender.

They are derived from the installation's secret and stored nowhere.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from producers.config import WebhookConfig

PREFIX = "whsec_"


def tenant_secrets(config: WebhookConfig, tenant: str) -> tuple[str, ...]:
    """Return the secrets of a tenant's callbacks, the newest first; none where the installation has none."""
    roots = [root.get_secret_value() for root in (config.secret, *config.old_secrets)]
    return tuple(_derive(root, tenant) for root in roots if root)


def _derive(root: str, tenant: str) -> str:
    made = hmac.digest(root.encode(), f"pointsman webhook {tenant}".encode(), hashlib.sha256)
    return PREFIX + base64.b64encode(made).decode()
