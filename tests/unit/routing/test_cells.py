"""Which cell a request goes to: decided by what it says about its tenant, which gives it nothing but the way."""

from __future__ import annotations

import hashlib

import pytest

from routing.cells import Cell, CellRefusal, Clue, Directory, choose_cell, clue_of, is_cell_name, is_login

KEY = "pmk_" + "k" * 43
HASH = hashlib.sha256(KEY.encode()).hexdigest()
EAST, WEST = (Cell(name, f"http://{name}", f"http://{name}-pages") for name in ("east", "west"))
SAID = Directory({"east": EAST, "west": WEST}, {"acme": "west"}, {HASH: "acme"})


@pytest.mark.parametrize(
    ("path", "headers", "query", "form", "clue"),
    [
        ("/v1/jobs", {"authorization": f"Bearer {KEY}"}, "", b"", Clue(key_hash=HASH)),
        ("/v1/jobs", {"authorization": f"bearer {KEY}"}, "", b"", Clue(key_hash=HASH)),
        ("/v1/jobs", {"x-api-key": KEY}, "", b"", Clue(key_hash=HASH)),
        ("/v1/jobs", {"authorization": "Bearer nonsense"}, "", b"", Clue()),
        ("/v1/jobs", {"cookie": "pointsman_tenant=acme"}, "tenant=acme", b"", Clue()),
        ("/v1/tickets/github/acme/shop", {}, "", b"", Clue(tenant="acme")),
        ("/live/acme/bakery/", {}, "", b"", Clue(tenant="acme")),
        ("/live/%61cme/bakery/", {}, "", b"", Clue(tenant="acme")),
        ("/live/../bakery/", {}, "", b"", Clue()),
        ("/console/login", {}, "", f"key=+{KEY}%20".encode(), Clue(key_hash=HASH)),
        ("/console/login", {}, "", b"key=\xff\x00", Clue()),
        ("/console/login", {}, "tenant=acme", b"", Clue(tenant="acme")),
        ("/console/", {"cookie": "a=b; pointsman_tenant=acme; c"}, "", b"", Clue(tenant="acme")),
        ("/console/", {"cookie": "pointsman_tenant=A'--"}, "", b"", Clue()),
        ("/healthz", {}, "", b"", Clue()),
    ],
)
def test_a_request_tells_its_tenant(path: str, headers: dict[str, str], query: str, form: bytes, clue: Clue) -> None:
    assert clue_of(path, headers, query=query, form=form) == clue


def test_a_known_tenant_has_its_cell_and_anybody_else_any_cell_which_refuses_them() -> None:
    assert choose_cell(SAID, Clue(key_hash=HASH)) == WEST
    assert choose_cell(SAID, Clue(tenant="acme")) == WEST
    assert choose_cell(SAID, Clue(tenant="nobody")) == EAST
    assert choose_cell(SAID, Clue()) == EAST
    assert choose_cell(Directory({}, {}, {}), Clue(tenant="acme")) is CellRefusal.NO_CELL


def test_a_cell_has_a_plain_name_and_only_a_posted_login_is_read() -> None:
    assert [is_cell_name(name) for name in ("east-1", "1east", "East", "")] == [True, False, False, False]
    assert [is_login(*asked) for asked in (("POST", "/console/login"), ("GET", "/console/login"), ("POST", "/x"))] == [
        True,
        False,
        False,
    ]
