"""Claims and intents: one owner, one submission of a number, whoever races for them."""

import multiprocessing
from pathlib import Path

import pytest

from airflow_ett.errors import Fenced, JobLogError
from airflow_ett.events import JobKey, Kind, RunDir
from airflow_ett.launch.joblog import Claim, RunDirLog

KEY = JobKey("default", "dag", "run", "train")


def open_log(path: Path) -> RunDirLog:
    return RunDirLog(RunDir(path / "job"), KEY)


def claim(log: RunDirLog, try_number: int = 1) -> Claim:
    return log.claim(try_number=try_number, max_tries=2, mode="task")


def test_the_newest_claim_owns_the_job(tmp_path: Path) -> None:
    old, new = open_log(tmp_path), open_log(tmp_path)
    first = claim(old)
    old.check(first)
    second = claim(new, try_number=2)
    assert (first.epoch, second.epoch) == (1, 2)
    new.check(second)
    with pytest.raises(Fenced, match="claim 2, this one is 1"):
        old.check(first)


def test_a_fenced_owner_cannot_intend(tmp_path: Path) -> None:
    old, new = open_log(tmp_path), open_log(tmp_path)
    first = claim(old)
    second = claim(new)
    with pytest.raises(Fenced):
        old.intend(first, 1, {"app": "a"})
    new.intend(second, 1, {"app": "a"})
    with pytest.raises(Fenced, match="being made elsewhere"):
        new.intend(second, 1, {"app": "a"})


def test_events_of_all_owners_come_back_in_order(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        log = open_log(tmp_path)
        claim(log, try_number=number)
        log.append("word", {"n": number})
    events = open_log(tmp_path).launcher_events()
    assert [(e.kind, e.data.get("try", e.data.get("n"))) for e in events] == [
        (kind, number) for number in (1, 2, 3) for kind in (Kind.CLAIMED, "word")
    ]
    assert len({(e.writer, e.seq) for e in events}) == 6


def test_a_log_that_has_lost_the_claim_is_away_and_not_taken_over(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    taken = claim(log)
    (tmp_path / "job").rename(tmp_path / "elsewhere")
    with pytest.raises(JobLogError, match="lost claim 1") as caught:
        log.check(taken)
    assert not isinstance(caught.value, Fenced)
    (tmp_path / "elsewhere").rename(tmp_path / "job")
    log.check(taken)


def test_an_unwritable_run_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "job").write_text("a file stands here")
    with pytest.raises(JobLogError, match="run_root"):
        claim(open_log(tmp_path))


def test_an_unclaimed_log_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(JobLogError, match="not claimed"):
        open_log(tmp_path).append("word")


def _race(path: str, barrier, answers) -> None:  # type: ignore[no-untyped-def]
    log = open_log(Path(path))
    barrier.wait()
    taken = claim(log)
    answers.put(taken.epoch)


def test_r01_racing_processes_get_different_epochs(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(6), context.Queue()
    processes = [
        context.Process(target=_race, args=(str(tmp_path), barrier, answers)) for _ in range(6)
    ]
    for process in processes:
        process.start()
    epochs = sorted(answers.get(timeout=20) for _ in processes)
    for process in processes:
        process.join()
    assert epochs == [1, 2, 3, 4, 5, 6]
