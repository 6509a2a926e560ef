"""A registry in an object store: what lies where, what a retry takes up, what is not promised."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.checkpoints.remote import RemotePath
from airflow_ett.errors import ConfigurationError, PublishError
from airflow_ett.publish import Request, publish
from airflow_ett.publish.registries import Registry, open_registry
from airflow_ett.publish.registries.objects import ObjectRegistry
from airflow_ett.storage.objects import ObjectStorage
from tests.publish.staged import fill, published
from tests.s3 import new_bucket

HASHED = "9a129038d9a0-model.safetensors"
"""The name of the file that holds ``weights``."""

OTHERS = json.dumps(
    {
        "version": "v2",
        "source": {"digest": "d", "cursor": 1, "saved_ns": 1},
        "files": {"model.safetensors": {"sha256": "s", "bytes": 1}},
    }
).encode()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A bucket on a real S3 server, and this host's staging below ``tmp_path``."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return new_bucket(monkeypatch)


@pytest.fixture
def registry(bucket: str) -> Registry:
    """Toy's registry in the bucket."""
    return open_registry(bucket, "toy")


def listed(bucket: str) -> list[str]:
    """Return the objects of toy."""
    import s3fs

    root = f"{bucket.removeprefix('s3://')}/toy/"
    found = s3fs.S3FileSystem(use_listings_cache=False).find(root)
    return sorted(path.removeprefix(root) for path in found)


def content(bucket: str, name: str) -> bytes:
    """Return an object of toy."""
    return RemotePath(f"{bucket}/toy/{name}").read_bytes()


def test_a_manifest_names_the_files_and_latest_the_version(registry: Registry, bucket: str) -> None:
    snapshot = published(registry, "v1")
    registry.point_latest(snapshot, force=False)
    assert snapshot.uri == f"{bucket}/toy/v1"
    assert listed(bucket) == ["latest", f"v1/{HASHED}", "v1/manifest.json"]
    assert content(bucket, "latest") == b"v1\n"
    files = json.loads(content(bucket, "v1/manifest.json"))["files"]
    assert files["model.safetensors"]["path"] == HASHED
    assert content(bucket, f"v1/{HASHED}") == b"weights"


def test_the_loser_takes_its_files_away(registry: Registry, bucket: str) -> None:
    published(registry, "v1")
    for theirs in (b"weights", b"others"):
        with registry.staging("v1") as staged:
            fill(staged, "v1", content=theirs, saved_ns=5)
            assert not registry.reveal(staged, "v1")
    assert listed(bucket) == [f"v1/{HASHED}", "v1/manifest.json"]
    assert registry.find("v1") is not None


@pytest.mark.parametrize(("left", "uploads"), [(b"weights", 0), (b"weigh", 1)])
def test_a_retry_goes_on_with_what_was_uploaded_whole(
    registry: Registry,
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
    left: bytes,
    uploads: int,
) -> None:
    RemotePath(f"{bucket}/toy/v1/{HASHED}").write_bytes(left)
    assert registry.find("v1") is None
    uploaded, upload = [], ObjectStorage.upload

    def noted(self: ObjectStorage, name: str, file: Path) -> None:
        uploaded.append(name)
        upload(self, name, file)

    monkeypatch.setattr(ObjectStorage, "upload", noted)
    published(registry, "v1")
    assert uploaded == [f"v1/{HASHED}"] * uploads
    assert listed(bucket) == [f"v1/{HASHED}", "v1/manifest.json"]


@pytest.mark.parametrize(
    ("name", "bytes_", "message"),
    [
        (HASHED, b"Weights", r"v1/model\.safetensors of a published version is damaged"),
        (HASHED, None, r"v1/model\.safetensors of a published version is damaged"),
        ("manifest.json", b"{}", r"manifest\.json .*damaged .*no manifest"),
        ("manifest.json", OTHERS, r"manifest\.json .*damaged .*that of version v2"),
        ("manifest.json", b"<html>", r"manifest\.json .*damaged .*no manifest"),
    ],
)
def test_a_damaged_version_is_named(
    registry: Registry, bucket: str, name: str, bytes_: bytes | None, message: str
) -> None:
    published(registry, "v1")
    path = RemotePath(f"{bucket}/toy/v1/{name}")
    if bytes_ is None:
        path.unlink()
    else:
        path.write_bytes(bytes_)
    with pytest.raises(PublishError, match=f"{message}.*remove {bucket}/toy/v1 and publish"):
        registry.find("v1")


def test_a_latest_that_names_nothing_is_replaced(registry: Registry, bucket: str) -> None:
    snapshot = published(registry, "v1")
    for nonsense in (b"gone\n", b"../other\n", b"\xff", b"", b"x" * 2000):
        RemotePath(f"{bucket}/toy/latest").write_bytes(nonsense)
        assert registry.point_latest(snapshot, force=False)
        assert content(bucket, "latest") == b"v1\n"


@contextlib.contextmanager
def deaf_to(registry: Registry, word: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the store skip a condition, as servers do that do not know it."""
    assert isinstance(registry, ObjectRegistry)
    fs = registry._store._fs
    put = fs.pipe_file

    def skip(path: str, data: bytes, **conditions: Any) -> Any:
        conditions.pop(word, None)
        return put(path, data, **conditions)

    with monkeypatch.context() as patch:
        patch.setattr(fs, "pipe_file", skip)
        yield


def test_a_store_that_cannot_swap_says_what_it_does_not_promise(
    registry: Registry,
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    old, new = published(registry, "v1", saved_ns=1), published(registry, "v2", saved_ns=2)
    with deaf_to(registry, "IfMatch", monkeypatch), caplog.at_level(logging.WARNING):
        assert registry.point_latest(old, force=False)
        assert registry.point_latest(new, force=False)
        assert not registry.point_latest(old, force=False)
    assert content(bucket, "latest") == b"v2\n"
    assert "two publishers end at one moment" in caplog.text
    caplog.clear()
    assert open_registry(bucket, "toy").point_latest(new, force=False)
    assert caplog.text == ""


def test_a_store_without_conditional_puts_is_refused(
    registry: Registry, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, two publishers could make one version."""
    with (
        deaf_to(registry, "mode", monkeypatch),
        pytest.raises(ConfigurationError, match="no conditional put") as caught,
    ):
        open_registry(bucket, "toy")
    assert caught.value.parameter == "registry"
    assert listed(bucket) == []


def test_a_latest_that_moves_all_the_time_is_told(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(registry, ObjectRegistry)
    snapshot = published(registry, "v1")
    monkeypatch.setattr(registry._store, "create", lambda *_: False)
    with pytest.raises(PublishError, match="another publisher has moved `latest`"):
        registry.point_latest(snapshot, force=False)


@pytest.mark.torch
@pytest.mark.usefixtures("untried")
def test_a_checkpoint_is_published_there_once(site: Any, bucket: str) -> None:
    request = Request(**site.arguments(site.save(), registry=bucket))
    first = publish(request)
    assert (first.existed, first.latest, first.uri) == (
        False,
        True,
        f"{bucket}/toy/{first.version}",
    )
    again = publish(request)
    assert (again.existed, again.digest, again.bytes) == (True, first.digest, first.bytes)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("s3://no-such-bucket/models", "Check the address, and the credentials.*no-such-bucket"),
        ("nowhere://models", "registry: .*nowhere"),
        ("s3://me:hunter2@host/models", "registry: .*holds a password"),
    ],
)
def test_a_registry_that_cannot_be_used_is_named(bucket: str, place: str, message: str) -> None:
    with pytest.raises((OSError, ConfigurationError), match=message) as caught:
        open_registry(place, "toy")
    assert "hunter2" not in str(caught.value)


def test_moving_a_version_needs_little_memory(bucket: str, tmp_path: Path) -> None:
    """In a process of its own: 200 MB up and down through 150."""
    code = f"""
from pathlib import Path
from airflow_ett.publish.registries import open_registry
from tests.publish.staged import fill

registry = open_registry({bucket!r}, "toy")
with registry.staging("v1") as staged:
    fill(staged, "v1", content=bytes(200_000_000))
    before = int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0])
    Path("/proc/self/clear_refs").write_text("5")
    registry.reveal(staged, "v1")
registry.find("v1")
peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
print((peak - before) // 1000)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    assert int(done.stdout) < 150
