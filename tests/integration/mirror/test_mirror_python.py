"""The mirror's Python index as a box meets it: the real pip, a real ledger, a registry that plays."""

import hashlib
import io
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from ledger.store import Ledger
from sandbox.package_mirror.python_packages import SIMPLE_JSON
from sandbox.package_mirror.registries import Registries
from tests.integration.mirror.mirror_world import FakeRegistry, MirrorWorld, fake_registry, mirror_world

FILE = "small-1.0-py3-none-any.whl"


def wheel() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("small.py", "version = 1\n")
        archive.writestr("small-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n")
        wheel_fields = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr("small-1.0.dist-info/WHEEL", wheel_fields)
        archive.writestr("small-1.0.dist-info/RECORD", "")
    return buffer.getvalue()


WHEEL = wheel()


def publish(registry: FakeRegistry, name: str, file: str, content: bytes, *, digest: str | None = None) -> None:
    """Put a file on a project's page, in HTML as many private indexes do."""
    registry.files[f"files/{file}"] = content
    stated = hashlib.sha256(content).hexdigest() if digest is None else digest
    page = f'<a href="../../files/{file}#sha256={stated}" data-requires-python="&gt;=3.8">{file}</a>'
    registry.overrides[f"simple/{name}/"] = lambda request: web.Response(text=page, content_type="text/html")


@contextmanager
def world(ledger: Ledger, url: str, directory: Path, **fields: Any) -> Iterator[tuple[FakeRegistry, MirrorWorld]]:
    with fake_registry() as index:
        registries = Registries(default="http://127.0.0.1:9/", python=f"{index.url}simple/")
        with mirror_world(ledger, url, directory, registries=registries, **fields) as mirror:
            yield index, mirror


def pip(url: str, target: Path, name: str) -> subprocess.CompletedProcess[str]:
    """Run the real pip as a box runs it."""
    options = ["--isolated", "--no-cache-dir", "--no-input", "--retries=0", "--disable-pip-version-check"]
    places = [f"--index-url={url}/simple/", f"--target={target}"]
    command = [sys.executable, "-m", "pip", "install", *options, *places, name]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env={"PATH": "/bin"})


def test_pip_installs_a_wheel_through_the_mirror(ledger: Ledger, ledger_url: str, tmp_path: Path) -> None:
    with world(ledger, ledger_url, tmp_path) as (index, mirror):
        publish(index, "small", FILE, WHEEL)
        done = pip(mirror.url, tmp_path / "site", "small")
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "site/small.py").read_text() == "version = 1\n"
        assert [path.name for path in mirror.kept()] == [hashlib.sha256(WHEEL).hexdigest()]


def test_a_source_distribution_is_served_only_of_a_project_that_the_operator_names(
    ledger: Ledger, ledger_url: str, tmp_path: Path
) -> None:
    with world(ledger, ledger_url, tmp_path, python_sdists=["named"]) as (index, mirror):
        for name in ("named", "other"):
            publish(index, name, f"{name}-1.0.tar.gz", name.encode())
        assert mirror.request("/simple/named/named-1.0.tar.gz").content == b"named"
        assert mirror.request("/simple/other/other-1.0.tar.gz").status_code == 404
        assert mirror.request("/simple/other/", accept=SIMPLE_JSON).json()["files"] == []


def test_a_file_that_is_not_what_its_page_says_is_neither_kept_nor_installed(
    ledger: Ledger, ledger_url: str, tmp_path: Path
) -> None:
    with world(ledger, ledger_url, tmp_path) as (index, mirror):
        publish(index, "small", FILE, WHEEL, digest="0" * 64)
        publish(index, "bare", "bare-1.0-py3-none-any.whl", WHEEL, digest="")
        publish(index, "mine", FILE, WHEEL)  # another project's file
        assert pip(mirror.url, tmp_path / "site", "small").returncode != 0
        assert mirror.kept() == []
        for name in ("bare", "mine"):
            assert mirror.request(f"/simple/{name}/", accept=SIMPLE_JSON).json()["files"] == []


def test_a_page_leads_to_the_mirror_alone_in_both_forms_and_is_for_live_attempts(
    ledger: Ledger, ledger_url: str, tmp_path: Path
) -> None:
    with world(ledger, ledger_url, tmp_path) as (index, mirror):
        publish(index, "small", FILE, WHEEL)
        as_json, as_html = mirror.request("/simple/small/", accept=SIMPLE_JSON), mirror.request("/simple/small/")
        (file,) = as_json.json()["files"]
        assert (file["url"], file["requires-python"]) == (FILE, ">=3.8")
        assert f'href="{FILE}#sha256={file["hashes"]["sha256"]}"' in as_html.text
        assert index.url not in as_json.text + as_html.text
        assert as_json.headers["etag"] != as_html.headers["etag"]
        assert mirror.request("/simple/small/", address="127.0.0.2").status_code == 401
        assert mirror.request("/simple/absent/").status_code == 404
