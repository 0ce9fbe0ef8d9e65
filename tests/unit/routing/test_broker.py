import pytest
from celery.exceptions import QueueNotFound

from routing.broker import (
    INTAKE_LISTS,
    PUBLISH_RETRY,
    SETTINGS,
    TRANSPORT_OPTIONS,
    build_queues,
    create_app,
    fleet_users,
    list_of,
    tenant_user,
)
from routing.config import BrokerConfig, read_settings
from routing.errors import PolicyError
from routing.queues import QUEUES, QueueName

HASH = "0" * 64


def test_a_tenants_user_writes_to_its_own_queue_and_reads_nothing() -> None:
    line = tenant_user("acme").line(HASH)
    assert line.startswith(f"user pointsman-tenant-acme reset on #{HASH} -@all resetkeys resetchannels ")
    keys = [word for word in line.split() if "~" in word]
    assert keys
    assert all(key.startswith("%W~") and "intake.acme" in key for key in keys)
    assert "&" not in line


def test_only_workers_hear_what_is_published_and_nobody_may_do_everything() -> None:
    for user in fleet_users():
        words = user.line(HASH).split()
        assert not {"+@all", "~*", "&*", "allkeys", "allcommands", "+keys", "+flushall", "+monitor"} & set(words)
        assert ("+subscribe" in words) == user.name.endswith("-worker")


# The broker's shape: one direct queue for each kind of work, JSON, early ack, no prefetch.


def test_every_queue_has_a_direct_exchange_of_its_own_name() -> None:
    queues = build_queues()
    assert [queue.name for queue in queues] == [list_of(name) for name in QueueName]
    assert not {queue.name for queue in queues} & set(INTAKE_LISTS)  # that list is no worker's
    for queue in queues:
        assert (queue.exchange.name, queue.exchange.type, queue.routing_key) == (queue.name, "direct", queue.name)


def test_only_json_travels() -> None:
    app = create_app("redis://127.0.0.1:1/0")
    assert app.conf.accept_content == ["json"]
    assert app.conf.task_serializer == app.conf.result_serializer == "json"


def test_a_message_for_a_queue_that_does_not_exist_is_refused_and_makes_none() -> None:
    app = create_app("redis://127.0.0.1:1/0")
    with pytest.raises(QueueNotFound):
        app.send_task("pointsman.spec", queue="spce")


def test_what_names_no_queue_lands_where_an_alert_sees_it() -> None:
    app = create_app("redis://127.0.0.1:1/0")
    assert app.conf.task_default_queue == "unrouted"
    assert TRANSPORT_OPTIONS["deadletter_queue"] == "unrouted"
    assert QueueName.UNROUTED not in QUEUES


def test_recovery_is_the_ledger_s_so_the_broker_acks_early_and_keeps_nothing_back() -> None:
    assert SETTINGS["task_acks_late"] is False
    assert SETTINGS["worker_disable_prefetch"] is True
    assert SETTINGS["worker_prefetch_multiplier"] == 1
    assert "visibility_timeout" not in TRANSPORT_OPTIONS


def test_a_dead_broker_costs_seconds_and_a_message_is_never_sent_twice() -> None:
    assert TRANSPORT_OPTIONS["socket_connect_timeout"] <= 5
    assert PUBLISH_RETRY["max_retries"] * PUBLISH_RETRY["interval_max"] <= 2
    assert not TRANSPORT_OPTIONS.get("retry_on_timeout")


def test_an_application_is_nobody_s_current_one() -> None:
    from celery import current_app

    app = create_app("redis://127.0.0.1:1/0")
    assert current_app._get_current_object() is not app


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"url": "http://broker/0"}, "must begin with redis:// or rediss://"),
        ({"url": "rediss://broker/0?ssl_cert_reqs=none"}, "it always is"),
        ({"ca_path": "/nowhere.pem"}, "must begin with rediss://"),
        ({"url": "rediss://broker/0", "ca_path": "/nowhere.pem"}, "there is no file /nowhere.pem"),
    ],
)
def test_settings_of_the_broker_that_cannot_be_kept_are_refused_by_rule(given: dict[str, str], rule: str) -> None:
    from pydantic import BaseModel

    class Settings(BaseModel):
        broker: BrokerConfig = BrokerConfig()

    with pytest.raises(PolicyError, match=rule):
        read_settings(Settings, {f"POINTSMAN_BROKER__{name.upper()}": value for name, value in given.items()})
