"""What every registry promises, whatever it is kept in."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from airflow_ett.publish.registries import Registry, open_registry
from tests.publish.service import serving
from tests.publish.staged import fill, published
from tests.s3 import new_bucket

Opened = Callable[[], Registry]
"""Opens one and the same registry anew, as another publisher would."""


@pytest.fixture
def in_a_folder(tmp_path: Path) -> Opened:
    """A folder."""
    return lambda: open_registry(str(tmp_path / "registry"), "toy")


@pytest.fixture
def on_s3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Opened:
    """A real S3 server on loopback."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    uri = new_bucket(monkeypatch)
    return lambda: open_registry(f"{uri}/models", "toy")


@pytest.fixture
def at_a_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Opened]:
    """A real HTTP service on loopback."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving(tmp_path / "service") as service:
        yield lambda: open_registry(service.url, "toy")


@pytest.fixture(params=["in_a_folder", "on_s3", "at_a_service"])
def opened(request: pytest.FixtureRequest) -> Opened:
    """One registry of each kind."""
    found: Opened = request.getfixturevalue(request.param)
    return found


def at_once(calls: Sequence[Callable[[], bool]]) -> list[bool]:
    """Call all at one moment, each in a thread; return their answers."""
    barrier, answers = threading.Barrier(len(calls)), [None] * len(calls)

    def call(index: int) -> None:
        barrier.wait()
        answers[index] = calls[index]()

    threads = [threading.Thread(target=call, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert None not in answers, "one raised"
    return answers


def test_a_version_is_there_once_it_is_revealed(opened: Opened) -> None:
    registry = opened()
    assert registry.find("v1") is None
    with registry.staging("v1") as staged:
        assert list(staged.iterdir()) == []
        fill(staged, "v1")
        assert opened().find("v1") is None
        assert registry.reveal(staged, "v1")
    assert not staged.exists()
    found = opened().find("v1")
    assert found is not None
    assert (found.version, found.bytes, found.age) == ("v1", 7, (1, 640))
    assert found.digest == hashlib.sha256(b"weights").hexdigest()


def test_what_is_staged_is_gone_when_that_fails(opened: Opened) -> None:
    with contextlib.suppress(OSError), opened().staging("v1") as staged:
        fill(staged, "v1")
        raise OSError("disk full")
    assert not staged.exists()
    assert opened().find("v1") is None


def test_of_several_publishers_one_makes_the_version(opened: Opened) -> None:
    """Each has another content, so that a mixture of two would be damaged."""

    def attempt(content: bytes) -> bool:
        registry = opened()
        with registry.staging("v1") as staged:
            fill(staged, "v1", content=content)
            return registry.reveal(staged, "v1")

    contents = [b"weights of %d" % number for number in range(6)]
    won = at_once([lambda content=content: attempt(content) for content in contents])
    assert won.count(True) == 1
    found = opened().find("v1")
    assert found is not None
    assert found.digest == hashlib.sha256(contents[won.index(True)]).hexdigest()


def test_latest_follows_the_age_of_the_training(opened: Opened) -> None:
    registry = opened()
    new, old = published(registry, "v2", saved_ns=20), published(registry, "v1", saved_ns=10)
    assert registry.point_latest(new, force=False)
    assert not opened().point_latest(old, force=False)
    assert opened().point_latest(new, force=False)
    assert opened().point_latest(old, force=True)
    assert opened().point_latest(new, force=False)


def test_of_several_at_one_moment_the_newest_stays_latest(opened: Opened) -> None:
    ages = [3, 1, 5, 2, 4]
    all_of_them = [published(opened(), f"v{age}", saved_ns=age) for age in ages]
    first = published(opened(), "v0", saved_ns=0)
    assert opened().point_latest(first, force=False)
    done = at_once(
        [lambda each=each: opened().point_latest(each, force=False) for each in all_of_them]
    )
    assert done[ages.index(5)]
    for each in (first, *all_of_them):
        moved = opened().point_latest(each, force=False)
        assert moved is (each.version == "v5")
