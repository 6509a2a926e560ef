"""The cursor file: exact after SIGKILL, whole in the face of torn writes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_ett.events import AttemptId, CursorFile, read_cursor

FIELDS = (2, 1, 0, 0, 55, 3, 640, 700, 1_000, 2_000, 600, 4, 600, 300, 100, 0)


def test_the_record_comes_back(tmp_path: Path) -> None:
    CursorFile(tmp_path / "cursor").write(*FIELDS)
    record = read_cursor(tmp_path / "cursor")
    assert record is not None
    assert (record.cursor, record.hwm, record.attempt) == (640, 700, AttemptId(2, 1, 0))


def test_the_open_interval_is_the_event_that_the_trainer_would_have_written(tmp_path: Path) -> None:
    file = CursorFile(tmp_path / "cursor")
    file.write(*FIELDS)
    record = read_cursor(tmp_path / "cursor")
    assert record is not None
    event = record.open_interval("job")
    assert event is not None
    assert (event.writer, event.seq, event.time_ns) == ("trainer-2.1.0-r0-p55", 3, 2_000)
    parts = [event.data[name] for name in ("step_ns", "wait_ns", "other_ns")]
    assert sum(parts) == event.data["to"] - event.data["from"]
    file.write(*FIELDS[:-1], 1)
    closed = read_cursor(tmp_path / "cursor")
    assert closed is not None
    assert closed.open_interval("job") is None


def test_a_torn_record_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "cursor"
    file = CursorFile(path)
    file.write(*FIELDS)
    before = path.read_bytes()
    file.write(*FIELDS[:6], 999, *FIELDS[7:])
    after = path.read_bytes()
    changed = next(i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b)
    path.write_bytes(after[: changed + 12] + before[changed + 12 :])
    record = read_cursor(path)
    assert record is not None
    assert record.cursor == 640


def test_no_file_and_an_empty_one_hold_nothing(tmp_path: Path) -> None:
    assert read_cursor(tmp_path / "none") is None
    (tmp_path / "cursor").touch()
    assert read_cursor(tmp_path / "cursor") is None
    CursorFile(tmp_path / "cursor").close()
    assert read_cursor(tmp_path / "cursor") is None


def test_the_cursor_is_exact_after_sigkill(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path

import pytest
from airflow_ett.events import CursorFile
file = CursorFile(Path({str(tmp_path / "cursor")!r}))
for cursor in range(1, 50_001):
    file.write(1, 0, 0, 0, 1, 0, cursor, cursor, 1, 2, 0, 1, 1, 0, 0, 0)
print("done", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        os.kill(process.pid, signal.SIGKILL)
    record = read_cursor(tmp_path / "cursor")
    assert record is not None
    assert record.cursor == 50_000


@pytest.fixture
def stepped(tmp_path: Path) -> tuple[Path, bytes, bytes]:
    """A cursor file, as it was two steps ago and as the newest step left it in the same slot."""
    path = tmp_path / "cursor"
    file = CursorFile(path)
    file.write(*FIELDS)
    for number in range(1, 4):
        file.step(640 + number, 2_000 + 100 * number, 4 + number, 600 + 90 * number, 300)
        if number == 1:
            before = path.read_bytes()
    return path, before, path.read_bytes()


def _cursor(path: Path, content: bytes) -> int | None:
    path.write_bytes(content)
    record = read_cursor(path)
    return record and record.cursor


def test_a_step_that_broke_off_anywhere_never_counts(stepped: tuple[Path, bytes, bytes]) -> None:
    """642 stands whole in the other slot; the slot of 643 is a mixture with what it held before."""
    path, before, after = stepped
    at = next(i for i in range(0, 512, 256) if _cursor(path, bytes(i) + after[i:][:256]) == 643)
    for cut in range(at + 1, at + 60):
        for mixture in (
            after[:cut] + before[cut : at + 256] + after[at + 256 :],
            after[:at] + before[at:cut] + after[cut:],
            after[:cut] + bytes(at + 60 - cut) + after[at + 60 :],
        ):
            assert _cursor(path, mixture) == (643 if mixture == after else 642)


def test_a_flipped_bit_voids_its_record(stepped: tuple[Path, bytes, bytes]) -> None:
    path, _, after = stepped
    at = next(i for i in range(0, 512, 256) if _cursor(path, bytes(i) + after[i:][:256]) == 643)
    for bit in range(8 * (60 + 88)):
        damaged = bytearray(after)
        damaged[at + bit // 8] ^= 1 << bit % 8
        assert _cursor(path, bytes(damaged)) == 642
