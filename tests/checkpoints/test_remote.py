"""Checkpoints behind a URI: the same promises, without folders, links and renames."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_ett import checkpoints
from airflow_ett.checkpoints import Checkpoint, holds
from airflow_ett.checkpoints.layout import folder
from airflow_ett.checkpoints.remote import RemotePath
from airflow_ett.errors import CheckpointError, ConfigurationError
from airflow_ett.events import AttemptId
from tests.s3 import new_bucket

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(params=["local", "memory", "s3"])
def root(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> RemotePath:
    """A folder of a file system that fsspec knows, and one at a real S3 server."""
    on_s3 = request.param == "s3"
    found = folder(f"{new_bucket(monkeypatch) if on_s3 else f'{request.param}://{tmp_path}'}/job")
    assert isinstance(found, RemotePath)
    return found


FIRST = AttemptId(1)


def save(root: RemotePath, cursor: int, attempt: AttemptId = FIRST) -> Checkpoint:
    path = root / checkpoints.folder_name(cursor, attempt)
    path.mkdir()
    (path / ".metadata").write_bytes(b"meta")
    (path / "__0_0.distcp").write_bytes(b"w" * 100)
    return checkpoints.commit(path, job="j", attempt=attempt, epoch=1, cursor=cursor)


def test_what_is_committed_is_found_again_by_its_uri(root: RemotePath) -> None:
    assert checkpoints.newest_committed(str(root)) is None
    saved = save(root, 10)
    assert saved.uri == f"{root}/c000000000000010-s1.0.0"
    assert checkpoints.open_checkpoint(saved.uri) == saved
    assert checkpoints.newest_verified(str(root)) == saved
    assert (saved.manifest.size, set(saved.files)) == (104, {".metadata", "__0_0.distcp"})


def test_r23_what_is_not_whole_is_passed_over_and_named(
    root: RemotePath, caplog: pytest.LogCaptureFixture
) -> None:
    save(root, 10)
    (save(root, 20).path / "COMMITTED").unlink()
    (save(root, 30).path / "__0_0.distcp").write_bytes(b"v" * 100)
    (save(root, 40).path / "__0_0.distcp").unlink()
    with caplog.at_level(logging.WARNING):
        good = checkpoints.newest_verified(str(root))
    assert good is not None
    assert good.cursor == 10
    (told,) = caplog.messages
    for word in ("COMMITTED is missing", "__0_0.distcp is damaged", "__0_0.distcp cannot be read"):
        assert word in told


def test_retention_removes_what_is_older_and_what_is_dead(root: RemotePath) -> None:
    for cursor in (10, 20, 30):
        save(root, cursor)
    (save(root, 40).path / "COMMITTED").unlink()
    last = save(root, 25, AttemptId(2))
    checkpoints.retain(root, keep=2, attempt=AttemptId(2))
    assert [c.cursor for c in checkpoints.list_checkpoints(str(root))] == [25, 30]
    assert {path.name for path in root.iterdir()} == {
        last.path.name,
        "c000000000000030-s1.0.0",
    }
    checkpoints.discard(last.path)
    assert not last.path.is_dir()


def test_a_file_that_another_rank_wrote_elsewhere_prevents_the_commit(root: RemotePath) -> None:
    path = save(root, 10).path
    (path / "COMMITTED").unlink()
    for digest, problem in (
        (checkpoints.FileDigest(3, "0" * 64), "cannot be seen on"),
        (checkpoints.FileDigest(99, "0" * 64), "has 100 bytes, but its rank wrote 99"),
    ):
        name = "__1_0.distcp" if digest.size == 3 else "__0_0.distcp"
        with pytest.raises(CheckpointError, match=problem):
            checkpoints.commit(
                path, job="j", attempt=AttemptId(1), epoch=1, cursor=10, written={name: digest}
            )
    assert checkpoints.newest_committed(str(root)) is None


def test_whatever_a_file_system_raises_is_an_os_error(
    root: RemotePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("no credentials")

    save(root, 10)
    for name in ("ls", "info"):
        with monkeypatch.context() as away:
            away.setattr(root._fs, name, refuse)
            with pytest.raises(OSError, match="RuntimeError: no credentials"):
                checkpoints.list_checkpoints(str(root))


def test_a_bucket_that_is_not_there_is_no_empty_folder_and_is_not_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A training would start from scratch for a letter in its ``checkpoint_uri``."""
    new_bucket(monkeypatch)
    missing = folder("s3://no-such-bucket/job")
    assert isinstance(missing, RemotePath)
    for use in (
        missing.is_dir,
        missing.is_file,
        lambda: checkpoints.newest_committed(str(missing)),
        lambda: checkpoints.open_checkpoint(f"{missing}/c000000000000010-s1.0.0"),
        lambda: save(missing, 10),
    ):
        with pytest.raises(OSError, match="bucket does not exist") as caught:
            use()
        assert not isinstance(caught.value, FileNotFoundError)
    assert "no-such-bucket" not in missing._fs.ls("", refresh=True)


@pytest.mark.parametrize("asked", ["info", "ls", "cat_file", "open"])
def test_an_outage_is_not_taken_for_a_missing_or_damaged_checkpoint(
    root: RemotePath, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """Else a training would go on from an older one, or a retention remove what is committed."""
    save(root, 10)
    whole = save(root, 20)

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "SlowDown")

    with monkeypatch.context() as away:
        away.setattr(root._fs, asked, refuse)
        with pytest.raises(PermissionError):
            checkpoints.newest_verified(str(root))
        if asked != "open":
            with pytest.raises(PermissionError):
                checkpoints.retain(root, keep=1, attempt=AttemptId(2))
    assert checkpoints.newest_verified(str(root)) == whole


def test_a_store_that_goes_away_under_an_open_file_is_an_os_error(root: RemotePath) -> None:
    """Its own errors are often none, and would be nobody's to catch."""
    whole = save(root, 10)

    class Away:
        def fail(self, *_: Any) -> None:
            raise RuntimeError("could not connect")

        read = readinto = write = seek = close = fail

    for mode in ("rb", "wb"):
        file = (root / "file").open("wb") if mode == "wb" else (whole.path / ".metadata").open("rb")
        inner = file._file
        file._file = Away()
        for use in (
            lambda file=file: file.read(1),
            lambda file=file: file.readinto(bytearray(1)),
            lambda file=file: file.write(b"x"),
            lambda file=file: file.seek(0),
            file.close,
        ):
            with pytest.raises(OSError, match="could not connect"):
                use()
        assert file.closed
        inner.close()


def test_a_file_is_read_and_written_as_on_a_disk(root: RemotePath) -> None:
    root.mkdir()
    with (root / "file").open("wb") as file:
        assert file.write(memoryview(b"0123456789")) == 10
        assert (file.writable(), file.tell()) == (True, 10)
    with (root / "file").open("rb") as file:
        buffer = bytearray(4)
        assert (file.seek(2), file.readinto(buffer), bytes(buffer)) == (2, 4, b"2345")
        assert (file.tell(), file.read(2), file.read()) == (6, b"67", b"89")
        assert (file.readable(), file.seekable(), file.seek(-1, 2)) == (True, True, 9)


def test_a_scheme_without_its_package_names_the_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="checkpoint_uri"):
        folder("nowhere://bucket/x")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ConfigurationError, match="needs fsspec"):
        folder("s3://bucket/x")


def test_a_reader_keeps_a_checkpoint_from_its_trainer(root: RemotePath) -> None:
    held = save(root, 10)
    holds.take(held.uri, "reader")
    save(root, 20)
    save(root, 30)
    checkpoints.retain(root, keep=2, attempt=FIRST)
    checkpoints.verify(held)
    holds.release(held.uri, "reader")
    checkpoints.retain(root, keep=2, attempt=FIRST)
    assert [c.cursor for c in checkpoints.list_checkpoints(str(root))] == [20, 30]
    with pytest.raises(CheckpointError):
        holds.take(held.uri, "reader")
