"""Checkpoints on disk: what is committed, what is passed over, what is never deleted."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_ett import checkpoints
from airflow_ett.checkpoints import Checkpoint
from airflow_ett.errors import CheckpointError, ConfigurationError
from airflow_ett.events import AttemptId

FIRST = AttemptId(1)
_ROOT = Path(__file__).resolve().parents[2]


def save(root: Path, cursor: int, attempt: AttemptId = FIRST, data: bytes = b"w") -> Checkpoint:
    path = root / checkpoints.folder_name(cursor, attempt)
    path.mkdir(parents=True)
    (path / ".metadata").write_bytes(b"meta")
    (path / "__0_0.distcp").write_bytes(data * 100)
    return checkpoints.commit(path, job="j" * 20, attempt=attempt, epoch=3, cursor=cursor)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_what_is_committed_is_found_again(tmp_path: Path) -> None:
    saved = save(tmp_path, 640, AttemptId(2, 1, 0))
    assert saved.path.name == "c000000000000640-s2.1.0"
    found = checkpoints.open_checkpoint(saved.uri)
    assert found == saved == checkpoints.newest_committed(str(tmp_path))
    assert (found.cursor, found.attempt, found.job) == (640, AttemptId(2, 1, 0), "j" * 20)
    assert found.manifest.epoch == 3
    assert set(found.files) == {".metadata", "__0_0.distcp"}
    assert found.manifest.size == 104
    checkpoints.verify(found)


def test_the_newest_is_the_largest_cursor_not_the_last_name(tmp_path: Path) -> None:
    save(tmp_path, 900, AttemptId(1))
    save(tmp_path, 1000, AttemptId(1))
    save(tmp_path, 1000, AttemptId(2))
    order = [(c.cursor, c.attempt.submission) for c in checkpoints.list_checkpoints(str(tmp_path))]
    assert order == [(900, 1), (1000, 1), (1000, 2)]


def test_no_folder_holds_no_checkpoint(tmp_path: Path) -> None:
    assert checkpoints.newest_committed(str(tmp_path / "none")) is None
    assert checkpoints.list_checkpoints(str(tmp_path / "none")) == []


def test_r23_half_written_checkpoints_are_named_once_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, 10)
    (save(tmp_path, 20).path / "COMMITTED").unlink()
    empty = tmp_path / checkpoints.folder_name(30, AttemptId(1))
    empty.mkdir()
    (tmp_path / "step-40").write_text("a stray file")
    before = sorted(tmp_path.rglob("*"))
    with caplog.at_level(logging.WARNING):
        newest = checkpoints.newest_committed(str(tmp_path))
    assert newest is not None
    assert newest.cursor == 10
    (warning,) = caplog.messages
    for name in ("c000000000000020", "c000000000000030", "step-40"):
        assert name in warning
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("damage", ["bit", "truncated", "missing", "link"])
def test_a_damaged_file_is_named_and_the_one_before_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    save(tmp_path, 10)
    newest = save(tmp_path, 20)
    shard = newest.path / "__0_0.distcp"
    if damage == "bit":
        flip_a_bit(shard)
    elif damage == "truncated":
        shard.write_bytes(shard.read_bytes()[:-1])
    else:
        kept = shard.rename(tmp_path.parent / f"{tmp_path.name}-shard")
        if damage == "link":
            shard.symlink_to(kept)
    with pytest.raises(CheckpointError, match="__0_0"):
        checkpoints.verify(newest)
    with caplog.at_level(logging.WARNING):
        good = checkpoints.newest_verified(str(tmp_path))
    assert good is not None
    assert good.cursor == 10
    assert len(caplog.messages) == 1
    assert "__0_0.distcp" in caplog.messages[0]


def test_a_changed_manifest_is_not_committed(tmp_path: Path) -> None:
    saved = save(tmp_path, 10)
    flip_a_bit(saved.path / "manifest.json")
    with pytest.raises(CheckpointError, match="COMMITTED does not match"):
        checkpoints.open_checkpoint(saved.uri)


def test_a_manifest_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    from airflow_ett.checkpoints.manifest import Manifest

    content = save(tmp_path, 10).manifest.encode().replace(b'".metadata"', b'"../../secret"')
    with pytest.raises(CheckpointError, match="path"):
        Manifest.decode(content)


@pytest.mark.parametrize("uri", ["nowhere://bucket/x", "relative/path", "file://elsewhere/x"])
def test_a_root_that_cannot_be_used_names_the_parameter(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="checkpoint_uri"):
        checkpoints.list_checkpoints(uri)


def test_a_file_uri_is_a_path(tmp_path: Path) -> None:
    save(tmp_path / "with space", 10)
    found = checkpoints.newest_committed((tmp_path / "with space").as_uri())
    assert found is not None
    assert found.cursor == 10


def test_retention_keeps_the_last_ones_committed_and_sweeps_dead_attempts(tmp_path: Path) -> None:
    for cursor in (10, 20, 30):
        save(tmp_path, cursor, AttemptId(1))
    dead = tmp_path / checkpoints.folder_name(40, AttemptId(1))
    mine = tmp_path / checkpoints.folder_name(50, AttemptId(2))
    later = tmp_path / checkpoints.folder_name(60, AttemptId(3))
    for path in (dead, mine, later):
        path.mkdir()
    save(tmp_path, 15, AttemptId(2))  # resumed from 10: what lies beyond was found damaged
    checkpoints.retain(tmp_path, keep=2, attempt=AttemptId(2))
    assert [c.cursor for c in checkpoints.list_checkpoints(str(tmp_path))] == [15, 30]
    assert not dead.exists()
    assert mine.exists()
    assert later.exists()


def test_r24_a_whole_checkpoint_exists_at_every_instant(tmp_path: Path) -> None:
    """Kill a process that saves and prunes all the time, at many moments."""
    code = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_checkpoints import save
from airflow_ett import checkpoints
from airflow_ett.events import AttemptId
root, start = Path(sys.argv[1]), int(sys.argv[2])
for cursor in range(start, 1_000_000):
    save(root, cursor, AttemptId(start))
    checkpoints.retain(root, keep=2, attempt=AttemptId(start))
    print(cursor, flush=True)
"""
    reached = 0
    for kill in range(20):
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path), str(reached + 1)],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(_ROOT)},
        )  # fmt: skip
        assert process.stdout is not None
        for _ in range(1 + kill % 4):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.communicate()
        good = checkpoints.newest_verified(str(tmp_path))
        assert good is not None
        assert good.cursor > reached
        reached = good.cursor
