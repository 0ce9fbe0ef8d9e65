from typing import Any
from uuid import uuid4

import pytest

from gateway.bearers import account_of, address_of, check_address, check_bearer, check_key, logged_path, token_of
from gateway.config import GatewayConfig, ProviderConfig
from gateway.messages import Code, RefusedError
from ledger.money import Bearer
from routing.policy.platform import platform_policy
from routing.queues import QueueName

OWN = ProviderConfig.model_validate({"base_url": "https://example.org", "api_key": "k", "label": "own"})


def bearer(**fields: Any) -> Bearer:
    base = {
        "attempt_id": uuid4(),
        "job_id": uuid4(),
        "root_id": uuid4(),
        "tenant": "acme",
        "queue": QueueName.SPEC,
        "tier": 1,
        "fence": 1,
        "job_cap_nanousd": 1,
        "provider": "own",
        "overrides": "{}",
        "today": "2026-01-01",
        "has_ended": False,
        "is_late": False,
        "is_fenced": False,
        "is_cancelled": False,
        "tenant_provider": "own",
    }
    return Bearer(**{**base, **fields})


@pytest.mark.parametrize(
    "headers",
    [
        {b"authorization": b"Bearer pma_x"},
        {b"authorization": b"bearer  pma_x "},
        {b"x-api-key": b"pma_x"},
        {b"authorization": b"Basic eA==", b"x-api-key": b"pma_x"},
    ],
)
def test_a_token_is_taken_from_either_header(headers: dict[bytes, bytes]) -> None:
    assert token_of(headers) == "pma_x"


@pytest.mark.parametrize(
    "headers", [{}, {b"authorization": b"Bearer"}, {b"authorization": b"Basic eA=="}, {b"x-api-key": b"x" * 300}]
)
def test_a_request_without_a_token_is_refused(headers: dict[bytes, bytes]) -> None:
    with pytest.raises(RefusedError) as caught:
        token_of(headers)
    assert caught.value.status == 401


@pytest.mark.threat("C2")
@pytest.mark.parametrize(
    ("found", "code", "status"),
    [
        (None, Code.UNKNOWN_TOKEN, 401),
        (bearer(has_ended=True, is_fenced=True), Code.ATTEMPT_ENDED, 401),
        (bearer(is_late=True), Code.DEADLINE_PASSED, 401),
        (bearer(is_fenced=True), Code.FENCED, 403),
        (bearer(is_cancelled=True), Code.CANCELLED, 403),
    ],
)
def test_a_bearer_that_may_not_call_is_told_why(found: Bearer | None, code: Code, status: int) -> None:
    with pytest.raises(RefusedError) as caught:
        check_bearer(found)
    assert (caught.value.code, caught.value.status) == (code, status)


LISTED = OWN.model_copy(update={"tenants": ("acme",)})


@pytest.mark.req("S-065", "S-066", "S-068")
@pytest.mark.parametrize(
    ("asks", "account", "why"),
    [
        ({"provider": None, "tenant_provider": None}, OWN, "tenant acme has no model provider"),
        ({"provider": "another", "tenant_provider": "another"}, OWN, "acme"),
        ({"provider": None, "tenant_provider": None}, LISTED, "tenant acme has no model provider"),
        ({"tenant": "rival"}, LISTED, "not tenant rival's"),
        ({"tenant_provider": "another"}, OWN, "not tenant acme's"),  # a project's key has to name the tenant itself
    ],
)
def test_there_is_no_provider_but_the_tenants_own(asks: dict[str, Any], account: ProviderConfig, why: str) -> None:
    with pytest.raises(RefusedError, match=why) as caught:
        account_of(bearer(**asks), {"own": account})
    assert caught.value.code is Code.NO_PROVIDER


@pytest.mark.parametrize(("account", "tenants"), [(OWN, "own"), (LISTED, "own"), (LISTED, "another")])
def test_a_tenant_s_own_provider_pays_and_so_does_a_project_s_that_names_it(
    account: ProviderConfig, tenants: str
) -> None:
    assert account_of(bearer(tenant_provider=tenants), {"own": account}) is account


def test_keys_do_not_show_in_a_printed_configuration() -> None:
    config = GatewayConfig.model_validate({"pepper": "pepper-pepper-pepper", "providers": {"own": OWN.model_dump()}})
    assert "pepper-pepper" not in repr(config)
    assert "'k'" not in repr(config)
    assert "pepper-pepper" not in config.model_dump_json()


LIMITS = platform_policy().queues


@pytest.mark.threat("B9", "C2")
@pytest.mark.parametrize("address", ["10.9.8.8", None, "::1", "10.9.8.71"])
def test_a_token_that_is_bound_to_an_address_opens_nothing_from_elsewhere(address: str | None) -> None:
    held = bearer(egress_address="10.9.8.7")
    check_address(held, address="10.9.8.7", limits=LIMITS[QueueName.AGENT])
    with pytest.raises(RefusedError) as caught:
        check_address(held, address=address, limits=LIMITS[QueueName.SPEC])
    assert (caught.value.code, caught.value.status) == (Code.WRONG_ADDRESS, 401)
    assert "10.9.8" not in caught.value.message, "a stolen token must not learn where it would work"


@pytest.mark.threat("B9")
def test_a_token_for_work_in_a_box_opens_nothing_before_it_is_bound() -> None:
    with pytest.raises(RefusedError, match="bound to none"):
        check_address(bearer(), address="10.9.8.7", limits=LIMITS[QueueName.AGENT])
    check_address(bearer(), address="10.9.8.7", limits=LIMITS[QueueName.SPEC])


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("10.9.8.7", "10.9.8.7"),
        ("::ffff:10.9.8.7", "10.9.8.7"),
        ("fd00::0001", "fd00::1"),
        (None, None),
        ("", None),
        ("/run/gateway.sock", None),
        ("10.9.8", None),
    ],
)
def test_an_address_has_one_form(peer: str | None, address: str | None) -> None:
    assert address_of(peer) == address


@pytest.mark.req("H-115")
def test_only_a_key_with_a_spending_limit_pays_for_work_in_a_box() -> None:
    limited = OWN.model_copy(update={"day_usd": 5.0})
    check_key(bearer(), limited, limits=LIMITS[QueueName.AGENT])
    check_key(bearer(), OWN, limits=LIMITS[QueueName.SPEC])
    with pytest.raises(RefusedError) as caught:
        check_key(bearer(), OWN, limits=LIMITS[QueueName.AGENT])
    assert caught.value.code is Code.NO_PROVIDER
    assert "day_usd" in caught.value.message


def test_work_in_a_box_needs_a_provider_of_claude() -> None:
    other = OWN.model_copy(update={"day_usd": 5.0, "api": "openai"})
    check_key(bearer(), other, limits=LIMITS[QueueName.SPEC])
    with pytest.raises(RefusedError, match="has no Claude"):
        check_key(bearer(), other, limits=LIMITS[QueueName.AGENT])


@pytest.mark.threat("C9")
def test_a_path_is_logged_without_what_may_be_a_token() -> None:
    token = "pma_" + "aB3-_" * 8
    assert logged_path("/v1/files") == "/v1/files"
    assert logged_path(f"/v1/{token}/x") == "/v1/[long]/x"
    assert token[:20] not in logged_path(f"/v1/{token}"[:30])
    assert len(logged_path("/a.b" * 10_000)) == 80
