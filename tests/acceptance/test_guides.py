"""Each ten-minute guide, run as it is written, against a real fleet. `make guides` runs all of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.installation import Installation
from tests.guides import PAGES, Guide


@pytest.fixture
def guide(request: pytest.FixtureRequest, installation: Installation, tmp_path: Path) -> Guide:
    if shutil.which("curl") is None:
        pytest.skip("no curl, which the guides use")
    installation.embedded.import_site("bakery")
    made = Guide(PAGES / f"{request.param}.md", tmp_path, installation.embedded)
    made.set_up()
    return made


@pytest.mark.parametrize("guide", ["fastapi"], indirect=True)
def test_the_fastapi_guide_runs_as_it_is_written(guide: Guide, installation: Installation) -> None:
    with guide.serving() as url:
        said = guide.run("try.sh", APP=url)
    assert '"is_new":false' in said
    assert f'"preview_url":"{installation.embedded.pages_url}/preview/' in said
    assert '"state":"published"' in said
    assert '"detail":[{"field":"site","rule":' in said
    assert "is sent again" in said


@pytest.mark.parametrize("guide", ["celery"], indirect=True)
def test_the_guide_for_celery_only_services_runs_as_it_is_written(guide: Guide) -> None:
    said = guide.run("try.sh")
    assert "look at http" in said
    assert "published for 0.00 USD" in said
    assert "cancelled: True" in said
    assert "rejected site" in said


@pytest.mark.long
@pytest.mark.parametrize("guide", ["django"], indirect=True)
def test_the_django_guide_runs_as_it_is_written(guide: Guide) -> None:
    files = {name: code for name, code in guide.blocks.items() if name.startswith("shop/")}
    shutil.rmtree(guide.directory / "shop")
    guide.run("start.sh")
    for name, code in files.items():
        (guide.directory / name).write_text(code)
    with guide.serving() as url:
        said = guide.run("try.sh", APP=url)
    assert '"is_new": false' in said
    assert '"ended": "rejected"' in said
    assert '"field": "site"' in said


@pytest.mark.long
@pytest.mark.parametrize("guide", ["node"], indirect=True)
def test_the_node_guide_runs_as_it_is_written(guide: Guide) -> None:
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("no Node.js with npm: `make test SYSTEM=1` as root installs them")
    try:
        guide.run("install.sh", seconds=180)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"npm could not fetch what the guide needs: {error}")
    said = guide.run("try.sh")
    assert "the same key, the same job: true" in said
    assert "the webhook says published" in said
    assert "refused: 422" in said
    assert "by celery: answered celery" in said
