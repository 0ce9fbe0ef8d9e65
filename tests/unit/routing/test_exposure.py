import pytest

from routing.exposure import is_exposed_broker, is_exposed_ledger


@pytest.mark.parametrize(
    ("url", "is_exposed"),
    [
        ("redis://127.0.0.1:6379/0", False),
        ("redis://localhost/0", False),
        ("redis://[::1]:6379/0", False),
        ("redis://broker.internal:6379/0", True),
        ("redis:///0?host=broker.internal", True),
        ("redis://10.0.0.7/0", True),
        ("rediss://broker.internal/0", False),
    ],
)
def test_a_broker_over_a_network_needs_tls(url: str, is_exposed: bool) -> None:
    assert is_exposed_broker(url) is is_exposed


@pytest.mark.parametrize(
    ("url", "is_exposed"),
    [
        ("postgresql://p@127.0.0.1/p", False),
        ("postgresql:///p?host=/run/postgresql", False),
        ("postgresql:///p?host=db.internal", True),
        ("postgresql://127.0.0.1/p?hostaddr=10.0.0.7", True),
        ("postgresql:///p?host=127.0.0.1:5432,db.internal", True),
        ("postgresql:///p?host=localhost:5432", False),
        ("postgresql:///p?host=%2Frun%2Fpostgresql&port=5433", False),
        ("postgresql://%2Frun/p", False),
        ("postgresql://p@db.internal/p", True),
        ("postgresql://p@db.internal/p?sslmode=require", True),
        ("postgresql://p@db.internal/p?sslmode=verify-full&sslrootcert=/ca.pem", False),
    ],
)
def test_a_ledger_over_a_network_needs_a_certificate_that_is_checked(url: str, is_exposed: bool) -> None:
    assert is_exposed_ledger(url) is is_exposed
