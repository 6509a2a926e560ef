"""Registries by their places, and one that a team has written itself."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.errors import ConfigurationError, PublishError
from airflow_ett.publish import Request, publish
from airflow_ett.publish.registries import Snapshot, open_registry
from airflow_ett.publish.registries.folder import FolderRegistry
from airflow_ett.publish.registries.http import HttpRegistry
from airflow_ett.publish.registries.objects import ObjectRegistry

MODULE = "ett_own_registry"


class Shelf:
    """A registry in memory, as short as one can be."""

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self.root = root
        self.manifests: dict[str, bytes] = {}
        self.latest = ""

    def find(self, version: str) -> Snapshot | None:
        content = self.manifests.get(version)
        return Snapshot.decode(f"shelf:{self.name}/{version}", content) if content else None

    @contextlib.contextmanager
    def staging(self, version: str) -> Iterator[Path]:
        folder = self.root / version
        folder.mkdir()
        yield folder

    def reveal(self, staged: Path, version: str) -> bool:
        content = (staged / "manifest.json").read_bytes()
        return self.manifests.setdefault(version, content) is content

    def point_latest(self, snapshot: Snapshot, *, force: bool) -> bool:
        self.latest = snapshot.version
        return True

    def sweep(self) -> None:
        pass


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A team's own module."""
    made = types.ModuleType(MODULE)
    monkeypatch.setitem(sys.modules, MODULE, made)
    return made


@pytest.mark.torch
@pytest.mark.usefixtures("untried")
def test_a_teams_own_registry_is_published_to(site: Any, module: Any, tmp_path: Path) -> None:
    shelves = []

    def make(name: str) -> Shelf:
        shelves.append(Shelf(name, tmp_path))
        return shelves[-1]

    module.make = make
    published = publish(Request(**site.arguments(site.save(), registry=f"{MODULE}:make")))
    (shelf,) = shelves
    assert (shelf.name, shelf.latest) == ("toy", published.version)
    assert published.uri == f"shelf:toy/{published.version}"


@pytest.mark.parametrize("method", ["find", "staging", "reveal", "point_latest", "sweep"])
def test_whatever_it_raises_is_told_with_its_name(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("shelf")

    module.make = lambda name: Shelf(name, tmp_path)
    monkeypatch.setattr(Shelf, method, fail)
    registry = open_registry(f"{MODULE}:make", "toy")
    uses = {
        "find": lambda: registry.find("v1"),
        "staging": lambda: registry.staging("v1").__enter__(),
        "reveal": lambda: registry.reveal(tmp_path, "v1"),
        "point_latest": lambda: registry.point_latest(Snapshot("", {}), force=False),
        "sweep": registry.sweep,
    }
    with pytest.raises(PublishError, match=f"{MODULE}:make: {method} failed: KeyError: 'shelf'"):
        uses[method]()


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("ett_nowhere:make", "No module named 'ett_nowhere'"),
        (f"{MODULE}:missing", "no attribute 'missing'"),
        (f"{MODULE}:broken", "ValueError: no such team"),
        (
            f"{MODULE}:nothing",
            "a NoneType, which has no find, staging, reveal, point_latest, sweep",
        ),
    ],
)
def test_a_function_that_gives_no_registry_is_named(module: Any, place: str, message: str) -> None:
    def broken(name: str) -> None:
        raise ValueError("no such team")

    module.broken, module.nothing = broken, lambda name: None
    with pytest.raises(ConfigurationError, match=message) as caught:
        open_registry(place, "toy")
    assert caught.value.parameter == "registry"


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("{tmp}/models", FolderRegistry),
        ("file://{tmp}/models", FolderRegistry),
        ("memory://models", ObjectRegistry),
        ("http://127.0.0.1:9/models", HttpRegistry),
    ],
)
def test_a_place_tells_what_the_registry_is(
    place: str, kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    registry = open_registry(place.format(tmp=tmp_path), "toy")
    assert type(registry) is kind
    if isinstance(registry, FolderRegistry):
        assert registry.folder == tmp_path / "models" / "toy"


def test_a_relative_folder_may_have_a_colon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(open_registry("./a:b", "toy"), FolderRegistry)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("", "registry: '' names no place"),
        ("s3://", "registry: 's3://' names no place"),
        ("http://[::1", "registry: is no address"),
        ("file://host/models", r"registry: .*names a host"),
    ],
)
def test_a_place_that_is_none_is_refused(place: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        open_registry(place, "toy")
