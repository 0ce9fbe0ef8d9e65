"""The stack's images, made without a registry: a Debian from this machine's package sources, wheels by its own pip.

What pip is set up with here stays in the image that packages are installed in: a test looks that it gets no further.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

from sandbox.image.build import apt_source

ROOT = Path(__file__).parents[2]
CACHE = Path.home() / ".cache" / "pointsman" / "compose"
_PACKAGES = (
    "ca-certificates",
    "iputils-ping",
    "openssh-client",
    "postgresql",
    "prometheus",
    "python3",
    "python3-venv",
    "redis-server",
    "wget",
)
_FOR_OLDER_PYTHONS = ("async-timeout>=4.0.3",)
"""What packages ask for below Python 3.11.3, as Debian 12 has it; the pip that fetches looks at its own Python."""
_LEFT_OUT = ("./dev", "./proc", "./sys", "./var/cache/apt", "./var/lib/apt/lists")

_POSTGRES_ENTRY = """#!/bin/sh
# As much of the official image's entry as the stack relies on.
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    initdb -D "$PGDATA" -U "$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" -A scram-sha-256 -E UTF8 --locale=C.UTF-8
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    pg_ctl -D "$PGDATA" -w -o "-c listen_addresses= -c unix_socket_directories=/tmp" start
    PGPASSWORD="$(cat "$POSTGRES_PASSWORD_FILE")" createdb -h /tmp -U "$POSTGRES_USER" "$POSTGRES_DB"
    pg_ctl -D "$PGDATA" -w -m fast stop
fi
exec "$@" -c listen_addresses='*' -c unix_socket_directories=/var/run/postgresql
"""
_FILES = {
    "valkey": """
        FROM {base}
        RUN ln -s redis-server /usr/bin/valkey-server && ln -s redis-cli /usr/bin/valkey-cli
        """,
    "postgres": """
        FROM {base}
        COPY entry /usr/local/bin/entry
        RUN chmod 755 /usr/local/bin/entry && echo 'owner:x:999:999::/tmp:/bin/sh' >> /etc/passwd \\
            && ln -s /usr/lib/postgresql/*/bin /opt/postgresql \\
            && mkdir -p /var/lib/postgresql/data /var/run/postgresql && chown 999:999 /var/lib/postgresql/data \\
            && chmod 3777 /var/run/postgresql
        ENV PATH=/opt/postgresql:/usr/local/bin:/usr/bin:/bin
        STOPSIGNAL SIGINT
        ENTRYPOINT ["entry"]
        """,
    "prometheus": """
        FROM {base}
        RUN mkdir /prometheus && chown 65534:65534 /prometheus
        ENTRYPOINT ["/usr/bin/prometheus"]
        """,
    "pip": """
        FROM {base}
        COPY wheels /wheels
        ENV PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels
        """,
}


class Images(NamedTuple):
    """Names on the engine."""

    base: str
    pip: str
    valkey: str
    postgres: str
    prometheus: str
    pointsman: str

    def remove(self) -> list[str]:
        """Take them and their stages off the engine, and return what is there still; the cache stays."""
        unwanted = [*self, *self._stages()]
        subprocess.run(["docker", "rmi", "--force", *unwanted], capture_output=True, check=False)
        return [name for name in unwanted if _is_there(name)]

    def _stages(self) -> list[str]:
        """Return the ids of images without a name that were built from one of these: a build leaves its stages."""
        listed = _said("docker", "images", "--all", "--quiet", "--no-trunc").split()
        found = {each["Id"]: each for each in json.loads(_said("docker", "inspect", *listed))} if listed else {}
        own = {name for name, each in found.items() if not set(self).isdisjoint(each["RepoTags"] or ())}

        def is_ours(name: str) -> bool:
            return name in own or (name in found and is_ours(found[name]["Parent"]))

        unnamed = _said("docker", "images", "--quiet", "--no-trunc", "--filter", "dangling=true").split()
        return [name for name in unnamed if is_ours(name)]


def missing() -> str:
    """Why the stack cannot be brought up here; empty when it can."""
    if os.geteuid() != 0:
        return "images from packages need root"
    absent = [name for name in ("docker", "docker-compose", "debootstrap") if shutil.which(name) is None]
    if absent:
        return f"no {', '.join(absent)}"
    answers = subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0
    return "" if answers else "no Docker engine answers"


def build(tag: str) -> Images:
    """Build every image under a tag of the caller's own."""
    images = Images(*(f"pointsman-test/{name}:{tag}" for name in Images._fields))
    made = _bootstrap()
    with made.open("rb") as stream:
        _run("docker", "import", "-", images.base, stdin=stream)
    with tempfile.TemporaryDirectory(prefix="pm-images-") as folder:
        context = Path(folder)
        (context / "entry").write_text(_POSTGRES_ENTRY)
        shutil.copytree(_wheels(), context / "wheels")
        for name, text in _FILES.items():
            steps = map(str.strip, text.format(base=images.base).splitlines())
            (context / f"{name}.Dockerfile").write_text("\n".join(steps))
            (context / ".dockerignore").write_text("" if name == "pip" else "wheels")
            file, image = str(context / f"{name}.Dockerfile"), getattr(images, name)
            _run("docker", "build", "--file", file, "--tag", image, folder)
    return images


def _wheels() -> Path:
    """Return the product's packages, and what builds the product itself, as this machine's pip fetches them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    product = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["tracing"]]
    wanted = sorted([*product, *project["build-system"]["requires"], "wheel", *_FOR_OLDER_PYTHONS])
    pins = ROOT / "constraints.txt"
    folder = CACHE / f"wheels-{hashlib.sha256(repr(wanted).encode() + pins.read_bytes()).hexdigest()[:12]}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="wheels-") as draft:
            _run(
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--disable-pip-version-check",
                "--only-binary",
                ":all:",
                "--constraint",
                str(pins),
                "--dest",
                f"{draft}/all",
                *wanted,
            )
            Path(draft, "all").replace(folder)
    return folder


def _bootstrap() -> Path:
    """Return a tar of a Debian with every program of the stack; made once for this machine."""
    suite, mirror = apt_source()
    CACHE.mkdir(parents=True, exist_ok=True)
    made = CACHE / f"stack-{suite}.tar"
    if made.exists():
        return made
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="bootstrap-") as folder:
        root, draft = Path(folder, "root"), Path(folder, "stack.tar")
        _run("debootstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}", suite, str(root), mirror)
        with tarfile.open(draft, "w", format=tarfile.PAX_FORMAT) as archive:
            archive.add(root, arcname=".", filter=_kept)
        draft.replace(made)
    return made


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    is_plain = member.isreg() or member.isdir() or member.issym() or member.islnk()
    return None if not is_plain or member.name.startswith(_LEFT_OUT) else member


def _is_there(name: str) -> bool:
    return subprocess.run(["docker", "image", "inspect", name], capture_output=True, check=False).returncode == 0


def _said(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def _run(*argv: str, stdin: object = subprocess.DEVNULL) -> None:
    done = subprocess.run(argv, stdin=stdin, capture_output=True, text=True, check=False)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{' '.join(argv[:3])} failed:\n{(done.stdout + done.stderr)[-3000:]}"
