"""Named contents: whole or absent, bounded, and every refusal has its reason."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_ett.checkpoints import layout
from airflow_ett.checkpoints.remote import RemotePath
from airflow_ett.trainer.caches import store as stores
from airflow_ett.trainer.caches.absence import Absent, NothingSaved
from airflow_ett.trainer.caches.store import CacheStore

_MOST = 1000
FACTS = b'{"digest": "%s", "about": {}, "size": %%s, "saved_ns": %%s}' % (b"0" * 64)


@pytest.fixture(params=["folder", "memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "folder":
        return str(tmp_path / "cache" / "tenant")
    pytest.importorskip("fsspec")
    if request.param == "memory":
        return f"memory://{tmp_path.name}/cache"
    from tests.s3 import new_bucket

    return f"{new_bucket(monkeypatch)}/cache"


@pytest.fixture
def store(place: str) -> CacheStore:
    return CacheStore(place, "room", max_bytes=_MOST)


@pytest.fixture
def local(tmp_path: Path) -> CacheStore:
    return CacheStore(str(tmp_path), "room", max_bytes=_MOST)


def names(store: CacheStore) -> list[str]:
    return [facts.name for facts in store.listing()]


def test_what_is_written_is_read(store: CacheStore, place: str) -> None:
    before = time.time_ns()
    store.write("one", b"first", {"by": "me"})
    content, facts = store.read("one")
    assert (content, facts.size, facts.about) == (b"first", 5, {"by": "me"})
    assert before <= facts.saved_ns <= time.time_ns()
    store.write("one", b"second", {})
    assert store.read("one")[0] == b"second"
    stored = layout.listing(layout.folder(f"{place}/room"))
    assert len(stored) == 3, "the former content is gone"


def test_nothing_saved_is_told_apart(store: CacheStore) -> None:
    assert store.listing() == []
    with pytest.raises(NothingSaved, match="nothing was saved as one"):
        store.read("one")


def test_what_was_used_longest_ago_goes_first(store: CacheStore) -> None:
    for name in ("one", "two", "three"):
        store.write(name, bytes(300), {})
    assert names(store) == ["three", "two", "one"]
    store.read("one")
    assert names(store) == ["one", "three", "two"]
    store.write("four", bytes(300), {})
    assert names(store) == ["four", "one", "three"]
    with pytest.raises(NothingSaved):
        store.read("two")


def test_there_are_only_so_many(local: CacheStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "MOST_ENTRIES", 2)
    for name in ("one", "two", "three", "four"):
        local.write(name, b"", {})
    assert names(local) == ["four", "three"]


def test_replacing_makes_no_room_of_its_own(store: CacheStore) -> None:
    store.write("one", bytes(400), {})
    store.write("two", bytes(500), {})
    store.write("two", bytes(600), {})
    assert names(store) == ["two", "one"]


def test_more_than_fits_is_refused(store: CacheStore, place: str) -> None:
    store.write("one", bytes(_MOST), {})
    with pytest.raises(Absent, match="1001 bytes are more than the 1000"):
        store.write("two", bytes(_MOST + 1), {})
    with pytest.raises(Absent, match="1000 bytes are more than 500"):
        CacheStore(place, "room", max_bytes=500).read("one")
    assert names(store) == ["one"]


def test_facts_that_lie_about_the_size_do_not_count(local: CacheStore, tmp_path: Path) -> None:
    local.write("liar", bytes(800), {})
    path = tmp_path / "room" / "liar.json"
    path.write_text(path.read_text().replace('"size": 800', '"size": 1'))
    with pytest.raises(Absent, match=r"corrupt: .* has more than 1 bytes"):
        local.read("liar")
    local.write("two", bytes(300), {})
    assert names(local) == ["two"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (b"{", "corrupt: the facts of one cannot be read"),
        (b"[]", "corrupt: the facts of one cannot be read"),
        (b'{"size": 5, "saved_ns": 1, "digest": "../../x", "about": {}}', "corrupt: the facts"),
        (b"\xff" * 10, "corrupt: the facts of one cannot be read"),
        (b"[" * 100_000, "corrupt: the facts of one cannot be read"),
        (FACTS % (b"1e999", b"1"), "corrupt: the facts of one cannot be read"),
        (FACTS % (b"5", b"1" * 300), "corrupt: the facts of one cannot be read"),
    ],
    ids=["half", "list", "digest", "bytes", "deep", "endless size", "far future"],
)
def test_facts_that_cannot_be_read(
    local: CacheStore, tmp_path: Path, change: bytes, reason: str
) -> None:
    local.write("one", b"first", {})
    (tmp_path / "room" / "one.json").write_bytes(change)
    with pytest.raises(Absent, match=reason):
        local.read("one")
    assert local.listing() == []
    local.write("two", b"other", {})
    local.write("one", b"again", {})
    assert local.read("one")[0] == b"again"


def test_a_changed_content_is_corrupt(store: CacheStore, place: str) -> None:
    store.write("one", b"first", {})
    (path,) = (
        path
        for path in layout.listing(layout.folder(f"{place}/room"))
        if path.name.endswith(".bin")
    )
    path.write_bytes(b"fIrst")
    with pytest.raises(Absent, match="corrupt: one is not what was saved"):
        store.read("one")
    path.unlink()
    with pytest.raises(Absent, match="corrupt: the content of one is gone"):
        store.read("one")


def test_a_read_that_meets_a_replacement_has_the_new_content(
    store: CacheStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write("one", b"first", {})
    real, replaced = stores._facts, []

    def facts(folder: layout.Folder, name: str) -> stores.Facts:
        found = real(folder, name)
        if not replaced:
            replaced.append(name)
            store.write("one", b"second", {})
        return found

    monkeypatch.setattr(stores, "_facts", facts)
    assert store.read("one")[0] == b"second"


def test_a_content_that_another_writer_has_not_yet_committed_stays(
    local: CacheStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = stores._commit

    def commit_late(folder: layout.Folder, facts: stores.Facts) -> None:
        monkeypatch.setattr(stores, "_commit", commit)
        local.write("two", b"in between", {})
        commit(folder, facts)

    monkeypatch.setattr(stores, "_commit", commit_late)
    local.write("one", b"first", {})
    assert (local.read("one")[0], local.read("two")[0]) == (b"first", b"in between")


def test_what_died_writers_left_goes_after_an_hour(
    store: CacheStore, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = layout.folder(f"{place}/room")
    store.write("one", b"first", {})
    now = time.time_ns()
    left = f"two-{now}-{'0' * 16}.bin"
    (folder / left).write_bytes(b"left over")
    (folder / f".one.json.1.{now}.tmp").write_bytes(b"left over")
    (folder / "readme").write_bytes(b"not ours")
    store.write("three", b"third", {})
    assert left in {path.name for path in layout.listing(folder)}
    monkeypatch.setattr(stores.time, "time_ns", lambda: now + stores.ORPHANED_NS + 10**9)
    store.write("three", b"later", {})
    there = {path.name for path in layout.listing(folder)}
    assert not [name for name in there if name == left or name.endswith(".tmp")]
    assert "readme" in there
    assert store.read("one")[0] == b"first"


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "UP", "x" * 101, "a.json"])
def test_a_name_cannot_lead_elsewhere(store: CacheStore, name: str) -> None:
    with pytest.raises(Absent, match="is no name for a file"):
        store.write(name, b"", {})


@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_writer_that_is_killed_leaves_no_half_entry(
    local: CacheStore, tmp_path: Path, written: int
) -> None:
    """Killed in the middle of its first, its second file, and before it tidies up."""
    local.write("one", b"first", {})
    code = f"""
        import os, pathlib, signal
        from airflow_ett.trainer.caches import store
        real, count = os.fdopen, [0]
        def fdopen(file, mode="r", *more):
            opened = real(file, mode, *more)
            if mode == "wb":
                count[0] += 1
                if count[0] > {written}:
                    opened.write(b"half")
                    opened.flush()
                    os.kill(os.getpid(), signal.SIGKILL)
            return opened
        pathlib.Path.unlink = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)
        os.fdopen = fdopen
        store.CacheStore({str(tmp_path)!r}, "room", max_bytes={_MOST}).write("one", b"second", {{}})
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert local.read("one")[0] == (b"second" if written == 2 else b"first")
    local.write("one", b"third", {})
    assert local.read("one")[0] == b"third"


@contextmanager
def full_disk() -> Iterator[None]:
    """No file may have more than 10 bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_told_and_leaves_nothing(local: CacheStore, tmp_path: Path) -> None:
    with full_disk(), pytest.raises(Absent, match=r"cannot be written: .*too large"):
        local.write("one", bytes(100), {})
    assert list((tmp_path / "room").iterdir()) == []


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = CacheStore(str(tmp_path / "file"), "room", max_bytes=_MOST)
    with pytest.raises(Absent, match=r"cannot be written: .*Not a directory"):
        store.write("one", b"", {})
    with pytest.raises(Absent, match=r"cannot be reached: .*Not a directory"):
        store.read("one")


def test_an_object_store_that_is_away_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fsspec")

    def away(*_: object, **__: object) -> None:
        raise OSError("the place is away")

    for method in ("read_bytes", "write_bytes", "iterdir", "stat", "mkdir"):
        monkeypatch.setattr(RemotePath, method, away)
    store = CacheStore("memory://away", "room", max_bytes=_MOST)
    with pytest.raises(Absent, match="cannot be reached: memory://away/room: the place is away"):
        store.read("one")
    with pytest.raises(Absent, match="cannot be reached"):
        store.listing()
    with pytest.raises(Absent, match="cannot be written"):
        store.write("one", b"", {})


@pytest.mark.parametrize("name", ["one.json", "content"])
def test_files_that_others_could_have_written_are_not_trusted(
    local: CacheStore, tmp_path: Path, name: str
) -> None:
    local.write("one", b"first", {})
    room = tmp_path / "room"
    assert {path.stat().st_mode & 0o777 for path in room.iterdir()} == {0o600}
    path = room / name if name == "one.json" else next(room.glob("*.bin"))
    path.chmod(0o666)
    with pytest.raises(Absent, match="not trusted: others can write to"):
        local.read("one")


def test_a_folder_that_others_can_write_is_not_trusted(local: CacheStore, tmp_path: Path) -> None:
    local.write("one", b"first", {})
    (tmp_path / "room").chmod(0o770)
    for act in (lambda: local.read("one"), local.listing, lambda: local.write("one", b"", {})):
        with pytest.raises(Absent, match=r"not trusted: others can write to .*\(mode 0770\)"):
            act()


@pytest.mark.parametrize("place", ["local:///x", "simplecache::memory://x", "dir://x"])
def test_a_place_that_hides_whose_files_they_are_is_not_trusted(place: str) -> None:
    with pytest.raises(Absent, match="not trusted: whose files"):
        CacheStore(place, "room", max_bytes=_MOST)


def test_no_place_and_no_absolute_place_are_told() -> None:
    with pytest.raises(Absent, match="set \\[ett\\] cache_root"):
        CacheStore("", "room", max_bytes=_MOST)
    with pytest.raises(Absent, match="must be an absolute path"):
        CacheStore("cache", "room", max_bytes=_MOST)


def test_facts_have_what_is_needed_and_no_more(local: CacheStore, tmp_path: Path) -> None:
    local.write("one", b"first", {"by": "me"})
    told = json.loads((tmp_path / "room" / "one.json").read_text())
    assert set(told) == {"size", "digest", "saved_ns", "about"}
    assert os.listdir(tmp_path) == ["room"]  # noqa: PTH208
