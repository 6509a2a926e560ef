"""Following logs and output while they grow."""

from collections.abc import Callable
from pathlib import Path

from airflow_ett.demo.follow import EventFollower, OutputFollower
from airflow_ett.events import RunDir


def test_each_event_is_returned_once_in_order_of_time(
    tmp_path: Path, write_job: Callable[..., RunDir]
) -> None:
    follower = EventFollower(tmp_path)
    assert follower.new() == []
    write_job(tmp_path)
    first = follower.new()
    assert [event.time_ns for event in first] == sorted(event.time_ns for event in first)
    assert first[0].kind == "job_opened"
    assert follower.new() == []
    write_job(tmp_path, run_id="run-2")
    assert len(follower.new()) == len(first)


def test_a_line_is_returned_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    path.write_bytes(b"one\ntw")
    follower = OutputFollower()
    assert list(follower.new([path])) == ["one"]
    with path.open("ab") as file:
        file.write(b"o\n")
    assert list(follower.new([path])) == ["two"]
    assert list(follower.new([path])) == []
