"""What Airflow alone hears of a task is kept with the job and moves no number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from airflow_ett.events import JobKey, RunDir, read_log
from airflow_ett.hooks.notes import AIRFLOW, USER, Note, read_notes, write_note
from airflow_ett.launch.root import Root
from airflow_ett.metric import measure
from airflow_ett.storage import FolderStorage

KEY = JobKey("default", "ranker", "run-1", "train")
LOST = Note("up_for_retry", AIRFLOW, 1, "no heartbeat")
MARKED = Note("failed", USER, 2, "set by hand")


def test_notes_are_read_in_the_order_in_which_they_were_written(
    tmp_path: Path, write_job: Callable[..., RunDir]
) -> None:
    run_dir = write_job(tmp_path)
    assert read_notes(FolderStorage(run_dir.path)) == []
    assert write_note(Root(str(tmp_path)), KEY, LOST)
    assert write_note(Root(str(tmp_path)), KEY, MARKED)
    assert read_notes(FolderStorage(run_dir.path)) == [LOST, MARKED]


def test_the_newest_generation_gets_the_note(
    tmp_path: Path, write_job: Callable[..., RunDir]
) -> None:
    first, tenth = (write_job(tmp_path, generation=number) for number in (1, 10))
    (tenth.path.parent / "g9-kept-by-hand").mkdir()
    assert write_note(Root(str(tmp_path)), KEY, MARKED)
    assert (read_notes(FolderStorage(first.path)), read_notes(FolderStorage(tenth.path))) == (
        [],
        [MARKED],
    )


def test_a_task_that_is_no_training_leaves_nothing_behind(tmp_path: Path) -> None:
    assert not write_note(Root(str(tmp_path)), KEY, MARKED)
    assert list(tmp_path.iterdir()) == []


def test_a_note_moves_no_number(tmp_path: Path, write_job: Callable[..., RunDir]) -> None:
    run_dir = write_job(tmp_path)

    def numbers() -> dict[str, object]:
        events = [event for path in run_dir.logs() for event in read_log(path).events]
        return dict(measure(events).as_dict())

    before = numbers()
    write_note(Root(str(tmp_path)), KEY, MARKED)
    assert any(path.name.startswith("airflow-") for path in run_dir.logs())
    assert numbers() == before
