"""A folder as a place: links, pipes and torn lines in it, and NFS with its old listings."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from airflow_ett.events import Event
from airflow_ett.storage import FolderStorage
from tests.launch.nfs import Nfs

JOB = "0123456789abcdef0123"
LOG = "nodes/t.jsonl"


def event(seq: int) -> Event:
    return Event(JOB, "t", seq, 1_000, "noted")


@pytest.fixture
def folder(tmp_path: Path) -> FolderStorage:
    return FolderStorage(tmp_path / "job")


@pytest.fixture
def nfs(monkeypatch: pytest.MonkeyPatch) -> Nfs:
    """A file system whose clients remember."""
    return Nfs(monkeypatch)


def test_a_torn_line_harms_no_later_one(folder: FolderStorage) -> None:
    """Whoever tore it: this process, whose disk was full, or one that was killed."""
    folder.append(LOG, [event(0)])
    with (folder.path / LOG).open("ab") as file:
        file.write(b'{"v":1,"job":"01')
    folder.append(LOG, [event(1)])
    chunk = folder.read_log(LOG)
    assert chunk.events == (event(0), event(1))
    assert [(bad.path.as_posix(), bad.line) for bad in chunk.bad] == [(LOG, b'{"v":1,"job":"01\n')]


def test_a_full_disk_is_told_and_later_lines_are_whole(
    folder: FolderStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.append(LOG, [event(0)])
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda handle, line: write(handle, line[:20]))
        with pytest.raises(OSError, match="20 of") as caught:
            folder.append(LOG, [event(1), event(2)])
    assert caught.value.errno == errno.ENOSPC
    folder.append(LOG, [event(1), event(2)])
    assert folder.events("nodes") == [event(0), event(1), event(2)]


def test_no_link_is_followed_and_no_pipe_blocks(folder: FolderStorage, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    folder.write("nodes/heartbeat-1.0-n0", b"")
    (folder.path / "cursor").symlink_to(tmp_path / "secret")
    (folder.path / LOG).symlink_to(tmp_path / "secret")
    (folder.path / "replies").symlink_to(tmp_path)
    os.mkfifo(folder.path / "nodes/pipe")
    os.mkfifo(folder.path / "nodes/pipe.jsonl")
    for use in (
        lambda: folder.read("cursor"),
        lambda: folder.read("nodes/pipe"),
        lambda: folder.read("replies/secret"),
        lambda: folder.write("replies/secret", b""),
        lambda: folder.append(LOG, [event(0)]),
    ):
        with pytest.raises(OSError, match=r"symbolic|regular"):
            use()
    assert [e.name for e in folder.entries("nodes")] == ["heartbeat-1.0-n0"]
    assert (folder.entries("replies"), folder.events("nodes"), folder.logs()) == ([], [], [])
    folder.write("cursor", b"mine")
    assert (folder.read("cursor"), (tmp_path / "secret").read_text()) == (b"mine", "s")


def test_a_file_that_fills_the_memory_is_not_read(folder: FolderStorage) -> None:
    folder.write("cursor", b"")
    os.truncate(folder.path / "cursor", 2**40)
    with pytest.raises(OSError, match="huge"):
        folder.read("cursor")


def test_a_folder_that_cannot_be_listed_is_not_an_empty_one(
    folder: FolderStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(path: Path) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(Path, "iterdir", stale)
    for use in (lambda: folder.entries("nodes"), lambda: folder.events("nodes")):
        with pytest.raises(OSError, match="Stale file handle"):
            use()


def test_on_nfs_a_listing_is_of_now_unless_an_older_one_does(tmp_path: Path, nfs: Nfs) -> None:
    place = tmp_path / "job"
    with nfs.on("a"):
        reader = FolderStorage(place)
        reader.create("launcher/claims/00000001.json", b"1")
        assert (reader.events("nodes"), reader.entries("replies")) == ([], [])
        assert len(reader.entries("launcher/claims")) == 1
    with nfs.on("b"):
        writer = FolderStorage(place)
        writer.create("launcher/claims/00000002.json", b"2")
        writer.write("replies/1.0.0-n0.json", b"{}")
        writer.append(LOG, [event(0)])
    with nfs.on("a"):
        assert len(reader.entries("launcher/claims", fresh=False)) == 1
        assert len(reader.entries("launcher/claims")) == 2
        assert (len(reader.entries("replies")), reader.events("nodes")) == (1, [event(0)])


def test_on_nfs_a_lost_answer_is_the_first(tmp_path: Path, nfs: Nfs) -> None:
    nfs.answers_lost = 1
    assert FolderStorage(tmp_path).create("launcher/claims/00000001.json", b"mine")
    nfs.answers_lost = 1
    assert not FolderStorage(tmp_path).create("launcher/claims/00000001.json", b"theirs")


def test_what_is_being_written_is_in_no_listing(folder: FolderStorage) -> None:
    folder.write("replies/1.0.0-n0.json", b"{}")
    (folder.path / "replies/draft-x1y2").write_bytes(b"half")
    (folder.path / "replies/odd name").write_bytes(b"")
    (folder.path / "replies/sub").mkdir()
    assert [e.name for e in folder.entries("replies")] == ["1.0.0-n0.json"]


def test_a_log_is_read_on_from_where_reading_stopped(folder: FolderStorage) -> None:
    folder.append(LOG, [event(0), event(1)])
    first = folder.read_log(LOG)
    assert folder.read_log(LOG, first.offset) == type(first)((), (), first.offset)
    folder.append(LOG, [event(2)])
    assert folder.read_log(LOG, first.offset).events == (event(2),)
    (folder.path / LOG).unlink()
    folder.append(LOG, [event(7)])
    assert folder.read_log(LOG, first.offset).events == (event(7),)
