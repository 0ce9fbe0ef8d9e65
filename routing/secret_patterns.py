"""What a key looks like: one list for what is taken out of logs and what no configuration or plan may hold."""

from __future__ import annotations

import re

SECRETS = re.compile(
    r"sk-[A-Za-z0-9_-]{16,}"
    r"|(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}"
    r"|gh[pousr]_[A-Za-z0-9]{30,}"
    r"|github_pat_[A-Za-z0-9_]{30,}"
    r"|glpat-[A-Za-z0-9_-]{20,}"
    r"|lin_(?:api|oauth)_[A-Za-z0-9]{20,}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}"
    r"|AIza[A-Za-z0-9_-]{30,}"
    r"|pmk_[A-Za-z0-9_-]{20,}"
    r"|whsec_[A-Za-z0-9+/=_-]{16,}"
    r"|(?<=://)[^\s/:@]*:[^\s/@]+(?=@)"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?i:(?<=bearer )[A-Za-z0-9._~+/=-]{16,})"
    r"|(?i:(?<=password=)\S+|(?<=password: )\S+)"
)
