"""A real sshd on loopback, for this process's own user, with keys of a test's own."""

import getpass
import os
import shutil
import socket
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from producers.local.supervisor import free_port
from tests.services import wait_until

PROGRAM = shutil.which("sshd", path=f"{os.defpath}:/usr/sbin:/sbin")
needs_sshd = pytest.mark.skipif(PROGRAM is None, reason="no sshd here; `make test SYSTEM=1` installs it")

_CONFIG = """\
ListenAddress 127.0.0.1:{port}
HostKey {home}/host
AuthorizedKeysFile {home}/authorized
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AcceptEnv GIT_PROTOCOL
"""


def make_key(path: Path) -> Path:
    """A key pair without a passphrase; the public half lies beside it."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", path], check=True)
    return path


@dataclass
class Sshd:
    """One server. `client` is a key that it accepts, `known_hosts` a file that pins it."""

    home: Path
    port: int = field(default_factory=free_port)

    def __enter__(self) -> Self:
        assert PROGRAM is not None
        self.home.mkdir(parents=True, exist_ok=True)
        self.client = make_key(self.home / "client")
        host = make_key(self.home / "host")
        (self.home / "authorized").write_text(f"restrict {self._public(self.client)}\n")
        self.known_hosts = self.home / "known_hosts"
        self.pin(host)
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # asked of a server that could become somebody else
        config = self.home / "config"
        config.write_text(_CONFIG.format(port=self.port, home=self.home))
        with ExitStack() as stack:
            log = stack.enter_context((self.home / "log").open("wb"))
            self._process = subprocess.Popen([PROGRAM, "-D", "-e", "-f", config], stderr=log)
            stack.callback(self._stop)
            wait_until(self._listens, seconds=10, what="sshd listens")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _listens(self) -> bool:
        with socket.socket() as caller:
            return caller.connect_ex(("127.0.0.1", self.port)) == 0

    def _stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)

    @property
    def user(self) -> str:
        """Whom it lets in."""
        return getpass.getuser()

    @property
    def base_url(self) -> str:
        """Of all repositories; their absolute paths follow."""
        return f"ssh://127.0.0.1:{self.port}"

    def pin(self, host_key: Path) -> None:
        """Write the one line of `known_hosts`."""
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {self._public(host_key)}\n")

    @staticmethod
    def _public(key: Path) -> str:
        return " ".join(Path(f"{key}.pub").read_text().split()[:2])
