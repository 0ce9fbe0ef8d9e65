"""Cells: which installation of a fleet serves a request. Pure: a request and what the directory says, to a cell.

Nothing here is a permission. Whatever a request says about its tenant chooses a cell, no more: the cell authenticates,
and refuses to write for a tenant that is not its own (`ledger.cells.tenant_rows`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import parse_qs, unquote

from routing.jobs import check_site_name

_CELL_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
_KEY = re.compile(r"pmk_[A-Za-z0-9_-]{43}")
_LOGIN = "/console/login"
TENANT_COOKIE = "pointsman_tenant"
"""Names the tenant of a console's session, so that its requests find their cell. It proves nothing."""


class Cell(NamedTuple):
    """An installation as a router sees it."""

    name: str
    api_url: str
    """Of its API and console."""
    pages_url: str
    """Of its previews and live pages."""


class CellRefusal(StrEnum):
    """Why a request has no cell: reason codes."""

    NO_CELL = "no_cell"
    """The directory has none."""
    DIRECTORY_UNREACHABLE = "directory_unreachable"
    """The cell does not answer, and this router has no earlier answer of it."""
    UNREACHABLE = "cell_unreachable"
    """The tenant's cell does not answer."""


class Clue(NamedTuple):
    """What a request says about its tenant; at most one of the two."""

    key_hash: str | None = None
    """Of its API key."""
    tenant: str | None = None


@dataclass(frozen=True)
class Directory:
    """What the directory said, as far as a request needs it."""

    cells: Mapping[str, Cell]
    tenants: Mapping[str, str]
    """The cell of each tenant."""
    keys: Mapping[str, str]
    """The tenant of each key's hash."""


def is_cell_name(name: str) -> bool:
    """Whether a cell may have this name."""
    return _CELL_NAME.fullmatch(name) is not None


def is_login(method: str, path: str) -> bool:
    """Whether a request's body may name its key."""
    return method == "POST" and path == _LOGIN


def clue_of(path: str, headers: Mapping[str, str], *, query: str = "", form: bytes = b"") -> Clue:
    """Return what a request says about its tenant.

    Args:
        path: as it was sent, without its query.
        headers: by lower-case name.
        query: the request's own.
        form: the body of a login.
    """
    if path == _LOGIN and form:
        return _clue_of_key(parse_qs(form.decode("latin-1")).get("key", [""])[0].strip())
    if path.startswith("/console"):
        named = parse_qs(query).get("tenant", [""])[0] or _cookie(headers.get("cookie", ""))
        return _clue_of_tenant(named)
    match [unquote(part) for part in path.split("/")]:
        case ["", "live", tenant, *_] | ["", "v1", "tickets", _, tenant, *_]:
            return _clue_of_tenant(tenant)
    kind, _, key = headers.get("authorization", "").partition(" ")
    return _clue_of_key(key.strip() if kind.lower() == "bearer" else headers.get("x-api-key", ""))


def choose_cell(directory: Directory, clue: Clue) -> Cell | CellRefusal:
    """Return the cell of a request; for an unknown caller any cell, which refuses it or shows its login page."""
    tenant = clue.tenant or directory.keys.get(clue.key_hash or "")
    cell = directory.cells.get(directory.tenants.get(tenant or "", ""))
    return cell or next(iter(directory.cells.values()), CellRefusal.NO_CELL)


def _clue_of_key(key: str) -> Clue:
    return Clue(key_hash=hashlib.sha256(key.encode()).hexdigest()) if _KEY.fullmatch(key) else Clue()


def _clue_of_tenant(name: str) -> Clue:
    try:
        return Clue(tenant=check_site_name(name))
    except ValueError:
        return Clue()


def _cookie(header: str) -> str:
    pairs = (pair.strip().partition("=") for pair in header.split(";"))
    return next((value for name, _, value in pairs if name == TENANT_COOKIE), "")
