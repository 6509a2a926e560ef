"""What a run directory shows: logs, signs of life, the cursor."""

import os
from pathlib import Path

import pytest

from airflow_ett.events import AttemptId, CursorFile, RunDir


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path)
    run.nodes.mkdir()
    return run


def write(path: Path, ns: int) -> None:
    """Make a file that was last written to at ``ns``."""
    path.touch()
    os.utime(path, ns=(ns, ns))


def test_only_regular_files_are_logs(run: RunDir) -> None:
    (run.nodes / "real.jsonl").touch()
    (run.nodes / "folder.jsonl").mkdir()
    os.mkfifo(run.nodes / "pipe.jsonl")
    (run.nodes / "link.jsonl").symlink_to("/etc/passwd")
    assert [path.name for path in run.logs()] == ["real.jsonl"]


def test_the_newest_counts(run: RunDir) -> None:
    assert (run.logged_ns(), run.heartbeat_ns()) == (None, None)
    for number, ns in enumerate((3000, 9000, 5000)):
        write(run.nodes / f"log-{number}.jsonl", ns)
        write(run.heartbeat(AttemptId(1), number), 10 * ns)
    assert (run.logged_ns(), run.heartbeat_ns()) == (9000, 90_000)


def test_a_linked_folder_shows_no_life(run: RunDir, tmp_path: Path) -> None:
    write(run.heartbeat(AttemptId(1), 0), 1)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "nodes").symlink_to(run.nodes)
    assert RunDir(tmp_path / "other").heartbeat_ns() is None


def test_the_cursor_is_read_where_it_can_be(run: RunDir, tmp_path: Path) -> None:
    assert run.last_cursor() is None
    file = CursorFile(run.cursor)
    file.write(1, 0, 0, 0, 102, 7, 40, 40, 100, 200, 0, 10, 90, 10, 0, 0)
    file.close()
    record = run.last_cursor()
    assert record is not None
    assert (record.seq, record.cursor) == (7, 40)
    link = RunDir(tmp_path / "link")
    link.path.mkdir()
    link.cursor.symlink_to(run.cursor)
    assert link.last_cursor() is None


def test_a_pipe_in_the_cursors_place_blocks_nobody(run: RunDir) -> None:
    os.mkfifo(run.cursor)
    assert run.last_cursor() is None
