from collections import Counter

from routing.jobs import JobRequest
from tests.chaos.workload import FAULTS, KINDS, TENANTS, plan_orders

SITES = ["site-0", "site-1"]


def test_the_seed_alone_decides_what_is_asked() -> None:
    assert plan_orders(200, seed=1, sites=SITES) == plan_orders(200, seed=1, sites=SITES)
    assert plan_orders(200, seed=1, sites=SITES) != plan_orders(200, seed=2, sites=SITES)


def test_every_kind_source_tenant_and_fault_is_among_the_jobs() -> None:
    orders = plan_orders(2_000, seed=1, sites=SITES)
    assert {order.kind for order in orders} == set(KINDS)
    assert {order.tenant for order in orders} == set(TENANTS)
    assert set(Counter(order.source for order in orders)) == {"http", "celery", "python"}
    assert all(any(fault in order.body["prompt"] for order in orders) for fault in FAULTS)
    assert len({order.id for order in orders}) == 2_000
    for order in orders:
        JobRequest.model_validate(order.body)
