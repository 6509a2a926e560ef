"""A registry folder on which others write, too, and what is damaged there."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_ett.errors import PublishError
from airflow_ett.publish.registries.folder import FolderRegistry
from tests.publish.staged import deny, published


@pytest.fixture
def registry(tmp_path: Path) -> FolderRegistry:
    """An empty registry."""
    return FolderRegistry(tmp_path, "toy")


@pytest.mark.parametrize("nonsense", [b"gone", b"../toy/v2", b"\xff", b"", b"x" * 2000, b"a\0b"])
def test_a_latest_that_names_nothing_is_replaced(registry: FolderRegistry, nonsense: bytes) -> None:
    snapshot = published(registry, "v1")
    published(registry, "v2", saved_ns=9)
    latest = registry.folder / "latest"
    latest.write_bytes(nonsense)
    assert registry.point_latest(snapshot)
    assert latest.read_text() == "v1\n"


def test_latest_is_no_way_to_anybodys_file(registry: FolderRegistry, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in (".latest.new", "latest"):
        (registry.folder / name).symlink_to(victim)
    assert registry.point_latest(published(registry, "v1"))
    assert victim.read_text() == "precious"
    assert not (registry.folder / "latest").is_symlink()


def test_latest_is_moved_where_another_user_made_the_lock(
    registry: FolderRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert registry.point_latest(published(registry, "v1"))
    deny(monkeypatch, registry.folder / ".latest.lock")
    assert registry.point_latest(published(registry, "v2"))
    assert (registry.folder / "latest").read_text() == "v2\n"


@pytest.mark.parametrize(
    "content",
    ["", "[]", "[" * 9999, '{"version": "v1", "source": {"saved_ns": 1e999, "cursor": 1}}'],
)
def test_a_damaged_manifest_is_named_and_never_the_latest(
    registry: FolderRegistry, content: str
) -> None:
    registry.point_latest(published(registry, "v1"))
    manifest = registry.folder / "v1" / "manifest.json"
    manifest.write_text(content)
    with pytest.raises(PublishError, match=f"{manifest} of a published version is damaged"):
        registry.find("v1")
    assert registry.point_latest(published(registry, "v2"))
