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


@pytest.mark.req("S-065", "S-066", "S-068")
@pytest.mark.parametrize("provider", [None, "another"])
def test_there_is_no_provider_but_the_tenants_own(provider: str | None) -> None:
    with pytest.raises(RefusedError) as caught:
        account_of(bearer(provider=provider, tenant_provider=provider), {"own": OWN})
    assert caught.value.code is Code.NO_PROVIDER
    assert "acme" in caught.value.message
    assert account_of(bearer(), {"own": OWN}) is OWN


@pytest.mark.req("S-065")
def test_a_tenant_without_a_provider_gets_no_other_s_key() -> None:
    poor = bearer(tenant="poor", provider=None, tenant_provider=None)
    with pytest.raises(RefusedError, match="tenant poor has no model provider") as caught:
        account_of(poor, {"own": OWN, "listed": OWN.model_copy(update={"tenants": ("poor",)})})
    assert caught.value.code is Code.NO_PROVIDER


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


@pytest.mark.req("S-065", "S-066", "S-068")
def test_a_key_that_names_its_tenants_pays_for_no_other() -> None:
    theirs = OWN.model_copy(update={"tenants": ("acme",)})
    assert account_of(bearer(), {"own": theirs}) is theirs
    with pytest.raises(RefusedError, match="not tenant rival's") as caught:
        account_of(bearer(tenant="rival"), {"own": theirs})
    assert caught.value.code is Code.NO_PROVIDER


@pytest.mark.req("S-066", "S-068")
def test_a_project_can_only_name_a_key_that_says_itself_that_it_is_its_tenant_s() -> None:
    listed = OWN.model_copy(update={"tenants": ("acme",)})
    strangers = OWN.model_copy(update={"tenants": ()})
    named = bearer(provider="enterprise", tenant_provider="own")
    assert account_of(named, {"enterprise": listed}) is listed
    with pytest.raises(RefusedError, match="not tenant acme's") as caught:
        account_of(named, {"enterprise": strangers})
    assert caught.value.code is Code.NO_PROVIDER


@pytest.mark.threat("C9")
def test_a_path_is_logged_without_what_may_be_a_token() -> None:
    token = "pma_" + "aB3-_" * 8
    assert logged_path("/v1/files") == "/v1/files"
    assert logged_path(f"/v1/{token}/x") == "/v1/[long]/x"
    assert token[:20] not in logged_path(f"/v1/{token}"[:30])
    assert len(logged_path("/a.b" * 10_000)) == 80
