"""One stack, driven as its operator would: by the compose files as they stand, and one file of the test's own."""

import json
import os
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import httpx2

from producers.local.supervisor import free_port
from tests.compose.images import ROOT, Images
from tests.services import wait_until

COMPOSE = ROOT / "compose"
TENANT = "demo"
ENDS = frozenset(
    {"answered", "published", "rejected", "expired", "cancelled", "failed", "timed_out", "budget_exceeded"}
    | {"output_exceeded", "escalated"}
)
_UP_SECONDS = 400
_ABSENT = "services: {grafana: {profiles: [absent]}}\n"
"""There is no package of Grafana here."""


class Stack:
    """A running stack."""

    def __init__(self, images: Images) -> None:
        self.name = f"pmtest{secrets.token_hex(3)}"
        self._folder = tempfile.TemporaryDirectory(prefix="pm-stack-")
        folder = Path(self._folder.name)
        self.secrets = folder / "secrets"
        own = folder / "own.yml"
        own.write_text(_ABSENT)
        self._files = (COMPOSE / "docker-compose.yml", COMPOSE / "fake-provider.yml", own)
        api, pages, prometheus = (free_port() for _ in range(3))
        third = 16 + secrets.randbelow(200)
        self.environment = os.environ | {
            "COMPOSE_PROJECT_NAME": self.name,
            "SECRETS": str(self.secrets),
            "POINTSMAN_INSTALL": self.name,
            "POINTSMAN_IMAGE": images.pointsman,
            "BASE_IMAGE": images.base,
            "BUILD_IMAGE": images.pip,
            "VALKEY_IMAGE": images.valkey,
            "POSTGRES_IMAGE": images.postgres,
            "PROMETHEUS_IMAGE": images.prometheus,
            "API_BIND": f"127.0.0.1:{api}",
            "API_URL": f"http://127.0.0.1:{api}",
            "PAGES_BIND": f"127.0.0.1:{pages}",
            "PAGES_URL": f"http://127.0.0.1:{pages}",
            "PROMETHEUS_BIND": f"127.0.0.1:{prometheus}",
            "DOCKER_GID": str(Path("/var/run/docker.sock").stat().st_gid),
            "OUTER_SUBNET": f"10.{third}.0.0/22",
            "OUTER_RANGE": f"10.{third}.2.0/23",
            "OUTER_GATEWAY": f"10.{third}.0.2",
            "OUTER_MIRROR": f"10.{third}.0.3",
            "MIRROR_PORT": "8091",
            "COMPOSE_PROFILES": "mirror",
            "BOX_SUBNETS": f"10.{third}.4.0/22",
            "DOCKER_BUILDKIT": "0",
            "COMPOSE_DOCKER_CLI_BUILD": "0",
        }
        self.prometheus_url = f"http://127.0.0.1:{prometheus}"
        self.pages_url = self.environment["PAGES_URL"]
        self.http = httpx2.Client(base_url=self.environment["API_URL"], timeout=20, trust_env=False)
        self.seconds: dict[str, float] = {}

    def __enter__(self) -> Self:
        subprocess.run([COMPOSE / "secrets.sh", self.secrets], check=True, capture_output=True)
        (self.secrets / "npmrc").write_text("registry=http://127.0.0.1:9/\n")  # nothing is fetched
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.http.close()
        if error is not None:
            print(self.compose("ps", check=False))
            print(self.compose("logs", "--tail", "30", "--no-color", check=False)[-20_000:])
        self.down()
        self._folder.cleanup()

    def compose(self, *argv: str, check: bool = True, seconds: float = _UP_SECONDS) -> str:
        """Run docker-compose on this stack's files; returns what it wrote to stdout."""
        files = [part for file in self._files for part in ("--file", str(file))]
        done = subprocess.run(
            ["docker-compose", *files, *argv],
            cwd=COMPOSE,
            env=self.environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
        assert not check or done.returncode == 0, f"{' '.join(argv)}:\n{(done.stdout + done.stderr)[-6000:]}"
        return done.stdout

    def timed(self, what: str, *argv: str) -> str:
        """Run docker-compose, and keep how long it took."""
        began = time.monotonic()
        said = self.compose(*argv)
        self.seconds[what] = round(time.monotonic() - began, 1)
        return said

    def cli(self, *argv: str, mount: str = "") -> str:
        """Run the product's command line as its README says."""
        return self.compose("run", "--rm", "-T", *(("-v", mount) if mount else ()), "cli", *argv)

    def down(self) -> None:
        """End it, with all that it has on the engine."""
        self.compose("stop", check=False)
        self.compose("run", "--rm", "-T", "--no-deps", "boxes", "box", "clear", check=False)
        self.compose("down", "--volumes", "--remove-orphans", check=False)

    def leftovers(self) -> list[str]:
        """Return what an engine still has of this stack or of its boxes."""
        found: list[str] = []
        for label in (f"com.docker.compose.project={self.name}", f"pointsman.install={self.name}"):
            for sort in (("ps", "--all"), ("network", "ls"), ("volume", "ls")):
                argv = ["docker", *sort, "--quiet", "--filter", f"label={label}"]
                listed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
                found += [f"{sort[0]} {name}" for name in listed]
        return found

    def services(self) -> list[str]:
        """Return the services that stay up."""
        running = {each["service"] for each in self.containers() if each["state"] == "running"}
        return sorted(running)

    def containers(self) -> list[dict[str, Any]]:
        """Return every container of the stack, with what tests ask about."""
        own = f"label=com.docker.compose.project={self.name}"
        argv = ["docker", "ps", "--all", "--quiet", "--no-trunc", "--filter", own]
        ids = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
        if not ids:
            return []
        shown = subprocess.run(["docker", "inspect", *ids], capture_output=True, text=True, check=False).stdout
        return [_container(found) for found in json.loads(shown)]

    def of(self, service: str) -> list[dict[str, Any]]:
        """Return the containers of a service that run."""
        return [each for each in self.containers() if each["service"] == service and each["state"] == "running"]

    def wait_well(self, services: Iterable[str], *, seconds: float) -> None:
        """Wait until every container of some services runs and is healthy."""
        wanted = set(services)

        def are_well() -> bool:
            found = [each for each in self.containers() if each["service"] in wanted]
            return {each["service"] for each in found} == wanted and all(each["is_well"] for each in found)

        wait_until(are_well, seconds=seconds, what=f"{', '.join(sorted(wanted))} are well")

    def kill(self, service: str) -> str:
        """End a service's first container as a crash would, by its process; returns the container's id."""
        container = self.of(service)[0]
        os.kill(container["pid"], signal.SIGKILL)
        return str(container["id"])

    def wait_restarted(self, container: str, *, seconds: float) -> None:
        """Wait until the engine started a container again, and its check says that it is well."""
        self._wait(lambda each: each["id"] == container and each["restarts"] > 0 and each["is_well"], seconds)

    def _wait(self, is_it: Any, seconds: float) -> None:
        wait_until(lambda: any(is_it(each) for each in self.containers()), seconds=seconds, what="it is back")

    def submit(self, prompt: str, **body: Any) -> UUID:
        """Submit as a careful client does: the same key again until there is an answer."""
        key = f"compose-{secrets.token_hex(8)}"

        def ask() -> httpx2.Response | None:
            try:
                answer = self.http.post("/v1/jobs", json={"prompt": prompt, **body}, headers={"idempotency-key": key})
            except httpx2.TransportError:
                return None
            return answer if answer.status_code < 500 else None

        answer = wait_until(ask, seconds=120, what="the API takes the job")
        assert answer is not None
        assert answer.status_code == httpx2.codes.ACCEPTED, answer.text
        return UUID(answer.json()["id"])

    def job(self, job_id: UUID) -> Mapping[str, Any]:
        try:
            answer = self.http.get(f"/v1/jobs/{job_id}")
        except httpx2.TransportError:
            return {"state": "unknown"}
        found: dict[str, Any] = answer.json() if answer.status_code == httpx2.codes.OK else {"state": "unknown"}
        return found

    def wait_for(self, job_id: UUID, *states: str, seconds: float = 60) -> Mapping[str, Any]:
        """Wait until a job comes to one of some states; an end that is none of them fails at once."""
        wanted = frozenset(states) or ENDS

        def look() -> Mapping[str, Any] | None:
            job = self.job(job_id)
            assert job["state"] in wanted or job["state"] not in ENDS, f"ended {job['state']}: {job.get('detail')}"
            return job if job["state"] in wanted else None

        found = wait_until(look, seconds=seconds, what=f"job {job_id} comes to {sorted(wanted)}")
        assert found is not None
        return found


def _container(found: Mapping[str, Any]) -> dict[str, Any]:
    state, labels = found["State"], found["Config"]["Labels"]
    return {
        "id": found["Id"],
        "service": labels["com.docker.compose.service"],
        "state": state["Status"],
        "pid": state["Pid"],
        "restarts": found["RestartCount"],
        "user": found["Config"]["User"],
        "is_well": state["Status"] == "running" and state.get("Health", {}).get("Status", "healthy") == "healthy",
        "host": found["HostConfig"],
        "mounts": found["Mounts"],
        "image": found["Image"],
    }
