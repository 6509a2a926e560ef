"""The job log in a run directory: on a local disk, on NFS, and when the storage is away."""

import json
import multiprocessing
from pathlib import Path

import pytest

from airflow_ett.errors import Fenced, JobLogError
from airflow_ett.events import AttemptId, JobKey, Kind, LogWriter, RunDir
from airflow_ett.launch.joblog import Claim
from airflow_ett.launch.root import Root
from airflow_ett.launch.storagelog import StorageLog
from airflow_ett.storage import FolderStorage
from tests.launch.nfs import Nfs

KEY = JobKey("default", "dag", "run", "train")


def open_log(path: Path) -> StorageLog:
    return StorageLog(FolderStorage(path / "job"), KEY)


def claim(log: StorageLog, try_number: int = 1) -> Claim:
    return log.claim(try_number=try_number, max_tries=2, mode="task")


@pytest.fixture
def nfs(monkeypatch: pytest.MonkeyPatch) -> Nfs:
    """A file system whose clients remember."""
    return Nfs(monkeypatch)


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


@pytest.mark.parametrize("what", ["check", "launcher_events", "intents", "replies"])
def test_a_folder_that_cannot_be_listed_is_not_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    log = open_log(tmp_path)
    taken = claim(log)
    log.intend(taken, 1, {"app": "a"})
    arguments = {"check": [taken], "replies": [AttemptId(1)]}.get(what, [])

    def stale(path: Path) -> None:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(Path, "iterdir", stale)
    with pytest.raises(JobLogError, match="Stale file handle"):
        getattr(log, what)(*arguments)


def _race(path: str, barrier, answers) -> None:  # type: ignore[no-untyped-def]
    log = open_log(Path(path))
    barrier.wait()
    taken = claim(log)
    answers.put(taken.epoch)


def test_r01_racing_processes_get_different_epochs(tmp_path: Path) -> None:
    # Not by fork: this process has threads, whose locks would never be given back in a child.
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(6), context.Queue()
    processes = [
        context.Process(target=_race, args=(str(tmp_path), barrier, answers)) for _ in range(6)
    ]
    for process in processes:
        process.start()
    epochs = sorted(answers.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    assert epochs == [1, 2, 3, 4, 5, 6]


def test_on_nfs_an_old_listing_hides_no_newer_owner(tmp_path: Path, nfs: Nfs) -> None:
    with nfs.on("a"):
        old = open_log(tmp_path)
        first = claim(old)
        old.check(first)
    with nfs.on("b"):
        claim(open_log(tmp_path), try_number=2)
    with nfs.on("a"), pytest.raises(Fenced):
        old.check(first)


def test_on_nfs_a_late_claim_comes_after_all_others(tmp_path: Path, nfs: Nfs) -> None:
    with nfs.on("a"):
        claim(open_log(tmp_path))
        assert open_log(tmp_path).newest() == 1
    with nfs.on("b"):
        for _ in range(3):
            claim(open_log(tmp_path))
    with nfs.on("a"):
        assert claim(open_log(tmp_path)).epoch == 5


def test_on_nfs_history_and_intents_are_those_of_now(tmp_path: Path, nfs: Nfs) -> None:
    with nfs.on("a"):
        first = open_log(tmp_path)
        first.intend(claim(first), 1, {"app": "a"})
        assert len(first.launcher_events()) == 2
        assert list(first.intents()) == [1]
    with nfs.on("b"):
        second = open_log(tmp_path)
        second.intend(claim(second), 2, {"app": "b"})
    with nfs.on("a"):
        third = open_log(tmp_path)
        assert [e.kind for e in third.launcher_events()] == 2 * [
            Kind.CLAIMED,
            Kind.SUBMIT_INTENDED,
        ]
        assert list(third.intents()) == [1, 2]


def test_on_nfs_the_last_words_of_agent_and_trainer_are_read(tmp_path: Path, nfs: Nfs) -> None:
    attempt = AttemptId(1)
    with nfs.on("launcher"):
        log = open_log(tmp_path)
        claim(log)
        assert (log.replies(attempt), log.submission_events(1)) == ([], [])
    with nfs.on("node"):
        RunDir(tmp_path / "job").reply(attempt, 0).write_text(json.dumps({"node": 0}))
        path = RunDir(tmp_path / "job").nodes / "t.jsonl"
        LogWriter(path, job=KEY.id, writer="t", attempt=attempt, rank=0).append("word")
    with nfs.on("launcher"):
        assert log.replies(attempt) == [{"node": 0}]
        assert len(log.submission_events(1)) == 1


def test_on_nfs_a_lost_answer_gives_one_claim_and_one_intent(tmp_path: Path, nfs: Nfs) -> None:
    log = open_log(tmp_path)
    nfs.answers_lost = 1
    taken = claim(log)
    assert (taken.epoch, log.newest()) == (1, 1)
    nfs.answers_lost = 1
    log.intend(taken, 1, {"app": "a"})
    log.check(taken)


def test_an_intent_whose_log_line_failed_is_made_again_by_its_claim_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    taken = claim(log)
    with monkeypatch.context() as full:
        full.setattr("airflow_ett.storage.folder.os.write", lambda *_: 0)
        with pytest.raises(JobLogError, match="bytes were written"):
            log.intend(taken, 1, {"app": "a"})
    log.intend(taken, 1, {"app": "a"})
    assert [e.kind for e in log.launcher_events()] == [Kind.CLAIMED, Kind.SUBMIT_INTENDED]
    with pytest.raises(Fenced):
        log.intend(taken, 1, {"app": "a"})


def test_a_run_root_that_cannot_be_listed_is_not_one_without_generations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Root(str(tmp_path)).newest_generation(KEY) == 0
    for name in ("g1", "g12", "g3", "gone", "drafts"):
        (tmp_path / KEY.base / name).mkdir(parents=True)
    (tmp_path / KEY.base / "g40").touch()
    assert Root(str(tmp_path)).newest_generation(KEY) == 12

    def stale(path: Path) -> None:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(Path, "iterdir", stale)
    with pytest.raises(JobLogError, match="Stale file handle"):
        Root(str(tmp_path)).newest_generation(KEY)
