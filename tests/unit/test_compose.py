"""What the compose files promise, read as data: who may reach what, and what each container may use."""

import re
import shutil
import subprocess
import tomllib
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, create_model

from docs.generate import sections
from monitoring.config import ExporterConfig
from producers.config import ApiConfig
from routing.config import PREFIX, SECTIONS, read_settings
from routing.queues import QUEUES
from routing.yaml_data import load_yaml
from sandbox.config import MirrorConfig
from sites.spec.languages.translation import MAX_CHUNKS
from workers.compute import MOST_CHILDREN
from workers.config import WorkerConfig

COMPOSE = Path(__file__).parents[2] / "compose"
FILES = ("docker-compose.yml", "fake-provider.yml")
SOCKET = "docker.sock"
OUTSIDE = {"api", "gateway", "mirror", "dispatcher", "prometheus", "grafana"} | {
    f"worker-{queue}" for queue in ("steps", "control", "tools")
}
"""Who publishes a port or has to call out."""

WITH_BOXES = [name.value for name, queue in QUEUES.items() if queue.needs_box]


def stack(*files: str) -> dict[str, Any]:
    """The files as Compose reads them, without a variable set."""
    whole: dict[str, Any] = {"services": {}}
    for file in files or FILES:
        read = load_yaml(_interpolated((COMPOSE / file).read_text()))
        for name, service in read["services"].items():
            own = whole["services"].setdefault(name, {})
            merged = {key: own.get(key, {}) | service.get(key, {}) for key in ("environment", "depends_on")}
            own |= service | merged
        whole |= {key: value for key, value in read.items() if key != "services"}
    return whole


def _interpolated(text: str) -> str:
    """Put defaults in the place of variables, as docker-compose 1.29 does: none within another; `$$` is a dollar."""
    text = re.sub(r"(?<!\$)\$\{\w+:-([^${}]*)\}", r"\1", text)
    assert not re.findall(r"(?<!\$)\$\{", text), "every variable has a default"
    return text.replace("$$", "$")


SERVICES = stack()["services"]
STAYING = {name: each for name, each in SERVICES.items() if each.get("restart") == "unless-stopped"}


def test_the_image_is_built_from_every_package() -> None:
    root = COMPOSE.parent
    included = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
    packages = {name.removesuffix("*") for name in included}
    copied = re.findall(r"^COPY ([\w/]+) \1$", (COMPOSE / "Dockerfile").read_text(), re.MULTILINE)
    seen = re.findall(r"^!([\w/]+)$", (root / ".dockerignore").read_text(), re.MULTILINE)
    assert set(copied) == {name for name in seen if (root / name).is_dir()}
    assert packages == {Path(name).name for name in copied}


def test_there_is_a_service_for_each_queue_and_each_serves_its_own_alone() -> None:
    queues = {queue.value for queue in QUEUES}
    served = {name.removeprefix("worker-"): each["command"][1] for name, each in SERVICES.items() if "worker-" in name}
    assert served == {queue: queue for queue in queues}
    assert set(SERVICES) >= {"valkey", "postgres", "api", "gateway", "dispatcher", "exporter", "prometheus", "grafana"}


@pytest.mark.req("H-119")
def test_only_workers_whose_queue_has_boxes_reach_an_engine() -> None:
    reaching = {name for name, each in SERVICES.items() if SOCKET in str(each)}
    assert reaching - {"boxes"} == {f"worker-{queue}" for queue in WITH_BOXES}
    assert SERVICES["boxes"]["profiles"] == ["cli"], "the operator's own command, which nobody starts with the stack"
    assert {name for name, each in SERVICES.items() if each.get("group_add")} == reaching


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_is_no_root_writes_nowhere_and_has_limits(name: str) -> None:
    service = SERVICES[name]
    assert service["user"].split(":")[0] not in ("", "0", "root")
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert {"mem_limit", "cpus", "pids_limit", "tmpfs", "logging"} <= set(service)
    assert not {"privileged", "cap_add", "pid", "ipc", "devices", "userns_mode"} & set(service)
    assert service.get("network_mode", "none") == "none"
    assert all("nosuid" in each and "nodev" in each and "size=" in each for each in service["tmpfs"])


@pytest.mark.parametrize("name", sorted(STAYING))
def test_what_stays_up_has_a_health_check_and_time_to_stop(name: str) -> None:
    assert STAYING[name]["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
    assert {"interval", "timeout", "retries", "start_period"} <= set(STAYING[name]["healthcheck"])
    assert name == "fake-provider" or "stop_grace_period" in STAYING[name]


def test_a_worker_gets_twenty_seconds_more_than_its_jobs_to_stop() -> None:
    for name, service in SERVICES.items():
        if name.startswith("worker-"):
            assert int(service["stop_grace_period"].removesuffix("s")) >= WorkerConfig().stop_seconds + 20


def test_a_worker_has_room_for_the_threads_of_all_its_jobs() -> None:
    for name, queue in QUEUES.items():
        service = SERVICES[f"worker-{name.value}"]
        each = 1 + (MAX_CHUNKS if queue.is_model_bound else 0)
        assert service["pids_limit"] > int(service["command"][-1]) * each + 2 * MOST_CHILDREN + 10, name


def test_processes_wait_for_the_migration_and_nobody_else_makes_one() -> None:
    for name, service in SERVICES.items():
        is_ours = service["image"] == SERVICES["migrate"]["image"]
        if is_ours and name in STAYING and name != "fake-provider":
            assert service["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}, name
    assert [name for name, each in SERVICES.items() if each.get("command") == ["migrate"]] == ["migrate"]


def test_nobody_but_gateway_and_mirror_is_on_the_outer_network_and_neither_it_nor_the_backend_leads_anywhere() -> None:
    whole = stack()
    assert {name for name, each in SERVICES.items() if "outer" in each.get("networks", ())} == {"gateway", "mirror"}
    assert {name for name, each in SERVICES.items() if "edge" in each.get("networks", ())} == OUTSIDE | {"boxes"}
    assert whole["networks"]["backend"] == {"internal": True}
    outer = whole["networks"]["outer"]
    assert outer["internal"] is True
    assert outer["driver_opts"] == {"com.docker.network.bridge.inhibit_ipv4": "true"}


def test_boxes_are_wired_to_the_outer_network_and_its_forwarders_cannot_take_an_address_of_those_behind_it() -> None:
    whole = stack()
    (pool,) = whole["networks"]["outer"]["ipam"]["config"]
    gateway, mirror = (SERVICES[name]["networks"]["outer"]["ipv4_address"] for name in ("gateway", "mirror"))
    for queue in WITH_BOXES:
        environment = SERVICES[f"worker-{queue}"]["environment"]
        assert environment["POINTSMAN_BOX__NETWORK"] == whole["networks"]["outer"]["name"]
        assert environment["POINTSMAN_BOX__GATEWAY_HOST"] == gateway
        assert environment["POINTSMAN_BOX__MIRROR_HOST"] == mirror
        assert environment["POINTSMAN_BOX__MIRROR_PORT"] == 0, "nobody is there unless the profile is on"
        assert environment["POINTSMAN_BOX__INSTALL"] == SERVICES["boxes"]["environment"]["POINTSMAN_BOX__INSTALL"]
        assert not IPv4Network(environment["POINTSMAN_BOX__SUBNETS"]).overlaps(IPv4Network(pool["subnet"]))
    for fixed in {gateway, mirror}:
        assert IPv4Address(fixed) in IPv4Network(pool["subnet"])
        assert IPv4Address(fixed) not in IPv4Network(pool["ip_range"])
    assert gateway != mirror
    assert IPv4Network(pool["ip_range"]).subnet_of(IPv4Network(pool["subnet"]))


def test_secrets_are_files_that_a_service_is_given_and_that_the_way_to_make_them_makes(tmp_path: Path) -> None:
    whole = stack()
    for name, service in SERVICES.items():
        environment = service["environment"]
        named = {value.rpartition("/")[2] for value in environment.values() if str(value).startswith("/run/secrets/")}
        assert named <= set(service.get("secrets", ())), name
        for variable in environment:
            secret = re.search(r"PASSWORD|_KEY|KEYS|SECRET|PEPPER|LEDGER__URL|BROKER__URL", variable)
            assert not secret or variable.endswith("_FILE"), f"{name} has {variable} in its environment"
    subprocess.run([COMPOSE / "secrets.sh", tmp_path / "made"], check=True, capture_output=True)
    made = {path.name: path.read_text() for path in (tmp_path / "made").iterdir()}
    assert set(made) == set(whole["secrets"])
    subprocess.run([COMPOSE / "secrets.sh", tmp_path / "made"], check=True, capture_output=True)
    assert {path.name: path.read_text() for path in (tmp_path / "made").iterdir()} == made, "what is there stays"
    assert (tmp_path / "made").stat().st_mode & 0o077 == 0


def test_whoever_works_out_a_tenant_s_webhook_secret_has_the_root_of_it() -> None:
    given = {name for name, each in SERVICES.items() if "webhook_secret" in each.get("secrets", ())}
    assert given == {"dispatcher", "cli"}, "`pointsman webhook secret` is the operator's"


def test_packages_are_served_where_the_operator_asks_for_it_from_the_registry_that_he_names() -> None:
    mirror = SERVICES["mirror"]
    assert mirror["profiles"] == ["mirror"]
    assert str(MirrorConfig().port) in " ".join(mirror["healthcheck"]["test"])
    assert [name for name, each in SERVICES.items() if "npmrc" in each.get("secrets", ())] == ["mirror"]
    assert f"packages:{mirror['environment']['POINTSMAN_MIRROR__CACHE']}" in mirror["volumes"]


@pytest.mark.req("S-066")
def test_the_provider_s_key_is_the_gateway_s_alone() -> None:
    assert [name for name, each in SERVICES.items() if "provider_key" in each.get("secrets", ())] == ["gateway"]


def settings_of(name: str) -> dict[str, str]:
    """What a service is told, each secret in the place of its file."""
    return {
        key: str(value)
        for key, value in SERVICES[name]["environment"].items()
        if key.startswith(PREFIX) and key.removeprefix(PREFIX).partition("__")[0].lower() in SECTIONS
    }


@pytest.mark.parametrize("name", sorted(name for name, each in SERVICES.items() if "pointsman" in each["image"]))
def test_the_settings_of_each_process_are_accepted(name: str, tmp_path: Path) -> None:
    subprocess.run([COMPOSE / "secrets.sh", tmp_path], check=True, capture_output=True)
    given = {key: value.replace("/run/secrets", str(tmp_path)) for key, value in settings_of(name).items()}
    named = {key.removeprefix(PREFIX).partition("__")[0].lower() for key in given}
    fields: dict[str, Any] = {part: (sections()[part], ...) for part in named}
    assert isinstance(read_settings(create_model("Given", **fields), given), BaseModel)


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is not installed")
@pytest.mark.parametrize("files", [FILES[:1], FILES])
def test_docker_compose_takes_the_files(files: tuple[str, ...]) -> None:
    argv = [part for file in files for part in ("--file", str(COMPOSE / file))]
    done = subprocess.run(["docker-compose", *argv, "config", "--quiet"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_grafana_and_prometheus_read_what_is_written_for_them() -> None:
    folder = COMPOSE / "grafana" / "provisioning"
    (source,) = load_yaml((folder / "datasources" / "pointsman.yml").read_text())["datasources"]
    (boards,) = load_yaml((folder / "dashboards" / "pointsman.yml").read_text())["providers"]
    assert source["url"] == "http://prometheus:9090"
    assert f"dashboards:{boards['options']['path']}:ro" in SERVICES["grafana"]["volumes"]
    written = SERVICES["dashboards"]["command"]
    assert f"dashboards:{written[written.index('--out') + 1]}" in SERVICES["dashboards"]["volumes"]
    assert "./grafana/provisioning:/etc/grafana/provisioning:ro" in SERVICES["grafana"]["volumes"]
    rules = Path(written[written.index("--rules") + 1])
    assert f"rules:{rules.parent}" in SERVICES["dashboards"]["volumes"]
    assert "rules:/etc/prometheus/rules:ro" in SERVICES["prometheus"]["volumes"]
    prometheus = load_yaml((COMPOSE / "prometheus.yml").read_text())
    assert prometheus["rule_files"] == [f"/etc/prometheus/rules/{rules.name}"]


def test_prometheus_scrapes_services_of_the_stack_at_the_ports_where_they_listen() -> None:
    scraped = load_yaml((COMPOSE / "prometheus.yml").read_text())["scrape_configs"]
    looked_up = [each for job in scraped for each in job.get("dns_sd_configs", ())]
    found = {(name, each["port"]) for each in looked_up for name in each["names"]}
    assert found == {("exporter", ExporterConfig().port), ("api", ApiConfig().port)}
