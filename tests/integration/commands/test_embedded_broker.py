"""The broker of `pointsman up` listens on loopback, where every account of the machine can reach it: it asks for a
password, which nobody can read off a process, a log or a screen."""

import subprocess
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import AuthenticationError, ConnectionError

from producers.commands.installation import _announce
from producers.local.embedded import Embedded, Options
from tests.services import wait_until


def answers(broker: Redis) -> bool:
    try:
        return bool(broker.ping())
    except ConnectionError:
        return False


def test_the_embedded_broker_answers_only_with_its_password(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    embedded = Embedded(Options(home=tmp_path), base_environment={})
    argv = embedded._valkey().argv
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        try:
            with Redis.from_url(embedded.broker_url) as broker:
                wait_until(lambda: answers(broker), seconds=10, what="it answers us")
                broker.lpush("intake", "x")
                password = broker.connection_pool.connection_kwargs["password"]
            with (
                Redis.from_url(embedded.broker_url.replace(f":{password}@", "")) as stranger,
                pytest.raises(AuthenticationError),
            ):
                stranger.lpush("intake", "hello")
        finally:
            process.kill()
    assert not [part for part in argv if password in part]
    _announce(embedded, program="pointsman", settings=tmp_path / "up.json")
    shown = capsys.readouterr().out
    assert password not in shown
    assert f"POINTSMAN_BROKER__URL in {tmp_path / 'up.json'}" in shown
    assert (tmp_path / "valkey" / "password.conf").stat().st_mode & 0o777 == 0o600
