from pathlib import Path

import pytest

from sandbox.image.devcontainer import DevcontainerError, read_devcontainer
from sandbox.image.source import ImageSource, ImageSourceError

TEXT = """// For format details, see https://containers.dev
{
  "name": "shop", /* a "name" */
  "build": {
    "dockerfile": "Dockerfile",
    "context": "..",
    "args": {"VARIANT": "3.12 // no comment, }",},
    "target": "dev",
  },
  "features": {"ghcr.io/devcontainers/features/node:1": {}},
  "runArgs": ["--privileged"],
  "mounts": ["source=/,target=/host,type=bind"],
}
"""


def place(repository: Path, text: str, name: str = ".devcontainer/devcontainer.json") -> Path:
    file = repository / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    (file.parent / "Dockerfile").write_text("FROM scratch\n")
    return file


def test_four_settings_are_followed_and_all_others_are_named(tmp_path: Path) -> None:
    file = place(tmp_path, TEXT)
    source, ignored = read_devcontainer(file)

    assert source == ImageSource(
        dockerfile=tmp_path / ".devcontainer/Dockerfile", context=tmp_path, args={"VARIANT": "3.12 // no comment, }"}
    )
    assert ignored == ("features", "runArgs", "mounts", "build.target")


def test_an_image_needs_no_dockerfile(tmp_path: Path) -> None:
    file = place(tmp_path, '{"image": "mcr.example/python:3.12", "postCreateCommand": "make"}', ".devcontainer.json")
    assert read_devcontainer(file) == (ImageSource(base="mcr.example/python:3.12"), ("postCreateCommand",))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}", "needs `image` or `build.dockerfile`, and not both"),
        ('{"image": "a", "build": {"dockerfile": "Dockerfile"}}', "and not both"),
        ('{"build": {"context": ".."}}', "build.dockerfile: Field required"),
        (
            '{"build": {"dockerfile": "Dockerfile", "args": {"A": ["b"]}}}',
            "build.args.A: Input should be a valid string",
        ),
        ('{"dockerFile": "Dockerfile"}', "needs `image` or `build.dockerfile`"),
        ("[]", "valid dictionary"),
        ('{"image": "a"', "is no JSON with comments"),
        ('{"image": "${localEnv:IMAGE}"}', "image: variables such as ${localEnv:IMAGE} are not filled in"),
        (
            '{"build": {"dockerfile": "Dockerfile", "args": {"T": "x${localEnv:TOKEN}"}}}',
            "build.args.T: variables such as ${localEnv:TOKEN} are not filled in",
        ),
        ('{"build": {"dockerfile": "Dockerfile", "context": "../.."}}', "build.context: ../.. lies outside of"),
        ('{"build": {"dockerfile": "/etc/passwd"}}', "build.dockerfile: /etc/passwd lies outside of"),
        ('{"build": {"dockerfile": "link"}}', "build.dockerfile: link lies outside of"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_field_and_rule(tmp_path: Path, text: str, why: str) -> None:
    file = place(tmp_path / "repository", text)
    (file.parent / "link").symlink_to("/etc/passwd")
    with pytest.raises(DevcontainerError) as caught:
        read_devcontainer(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert why in str(caught.value)


def test_a_dockerfile_that_is_not_there_or_not_in_its_context_is_named(tmp_path: Path) -> None:
    file = place(tmp_path, '{"build": {"dockerfile": "nowhere"}}')
    with pytest.raises(ImageSourceError, match="nowhere: there is no such Dockerfile"):
        read_devcontainer(file)
    (tmp_path / "src").mkdir()
    file = place(tmp_path, '{"build": {"dockerfile": "Dockerfile", "context": "../src"}}')
    with pytest.raises(ImageSourceError, match="lies outside of the directory to build in"):
        read_devcontainer(file)
