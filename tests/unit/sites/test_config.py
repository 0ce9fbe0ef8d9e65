"""Settings of the content store."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

import sites.content_store
from routing.config import collect_secrets, read_settings
from routing.errors import PolicyError
from sites.blobs import LocalBlobs
from sites.config import ContentStoreConfig
from sites.content_store import open_content_store
from sites.errors import StoreUnavailableError
from sites.object_blobs import open_store


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"url": "ftp://bucket"}, "url"),
        ({"url": "s3://"}, "url"),
        ({"url": "/srv/files"}, "url"),
        ({"url": "s3://me:secret@bucket"}, "url"),
        ({"url": "s3://bucket?region=x"}, "url"),
        ({"options": {"region": "x"}}, "url"),
        ({"url": "s3://bucket", "options": {"secret_access_key": "x"}}, "secrets"),
        ({"url": "s3://bucket", "options": {"session_token": "x"}}, "secrets"),
        ({"url": "s3://bucket", "options": {"access_key_id": "x"}}, "secrets"),
        ({"url": "az://files", "options": {"account_key": "x"}}, "secrets"),
        ({"url": "s3://bucket", "options": {"Re gion": "x"}}, "names"),
        ({"url": "s3://bucket", "options": {"endpoint": "http://u:SECRET@host"}}, "endpoint must hold no user"),
        ({"url": "s3://bucket", "options": {"region": "x\n"}}, "control character"),
        ({"url": "s3://bucket", "secrets": {"access_key_id": "x\n"}}, "control character"),
        ({"cache_bytes": -1}, "cache_bytes"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
    ],
)
def test_a_place_for_files_that_makes_no_sense_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ContentStoreConfig.model_validate(fields)


def test_a_refused_endpoint_is_not_shown() -> None:
    class Read(BaseModel):
        content_store: ContentStoreConfig = ContentStoreConfig()

    place = {"URL": "s3://bucket", "OPTIONS": '{"endpoint": "http://u:SECRET@host"}'}
    with pytest.raises(PolicyError, match="no user or password") as caught:
        read_settings(Read, {f"POINTSMAN_CONTENT_STORE__{name}": value for name, value in place.items()})
    assert "SECRET" not in str(caught.value)


def test_without_a_url_files_are_on_the_local_disk_as_ever(tmp_path: Path) -> None:
    config = ContentStoreConfig(root=tmp_path)
    assert isinstance(open_content_store(config).blobs, LocalBlobs)
    assert config.projects
    assert not ContentStoreConfig(url="s3://bucket/prefix").projects
    assert ContentStoreConfig(url="s3://bucket/prefix", projection=True).projects


def test_no_site_may_hold_the_keys_of_the_object_store() -> None:
    config = ContentStoreConfig.model_validate(
        {"url": "s3://bucket", "options": {"region": "us-east-1"}, "secrets": {"secret_access_key": "a-real-secret"}}
    )
    assert collect_secrets(config) == ("a-real-secret",)
    assert "a-real-secret" not in repr(config)


def test_an_object_store_without_its_extra_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sites.content_store, "find_spec", lambda name: None)
    with pytest.raises(PolicyError, match=r"pointsman\[s3\]"):
        open_content_store(ContentStoreConfig(root=tmp_path, url="s3://bucket"))


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://bucket/prefix", {"region": "eu-central-1", "sse_kms_key_id": "x", "web_identity_token_file": "/x"}),
        ("gs://bucket/prefix", {"skip_signature": "true"}),
        ("az://files/prefix", {"account_name": "acme"}),
    ],
)
def test_each_kind_of_object_store_takes_its_own_options(tmp_path: Path, url: str, options: dict[str, str]) -> None:
    config = ContentStoreConfig(root=tmp_path, url=url, options=options)
    assert open_content_store(config).blobs.at_once > 1
    open_store(config)
    with pytest.raises(StoreUnavailableError, match="nonsense"):
        open_store(config.model_copy(update={"options": {"nonsense": "x"}}))
