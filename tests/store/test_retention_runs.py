"""Run directories, checkpoints and outputs of jobs that ended long ago, and of no others."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select

from airflow_ett import config
from airflow_ett.checkpoints import commit, folder_name, list_checkpoints
from airflow_ett.errors import ConfigurationError
from airflow_ett.events import AttemptId, JobKey, LogWriter, RunDir
from airflow_ett.fleet.prune import prune
from airflow_ett.launch.opening import open_job
from airflow_ett.launch.root import Root
from airflow_ett.launch.schedulers.appdir import AppDir, Status
from airflow_ett.launch.schedulers.processes import here
from airflow_ett.store import (
    Store,
    ingest_root,
    ingest_run_dir,
    oldruns,
    open_store,
    tables,
    upgrade,
)
from airflow_ett.store.oldruns import prune_run_dirs

WriteJob = Callable[..., RunDir]
S = 1_000_000_000
DAY = 86_400 * S
TRIES = {"try_number": 2, "max_tries": 3}
NAMES = {"deployment": "default", "dag_id": "ranker", "run_id": "run-1", "task_id": "train"}


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """A store on SQLite: files are what this is about."""
    url = f"sqlite:///{tmp_path}/ett.db"
    upgrade(url)
    store = open_store(url)
    yield store
    store.close()


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., config.Settings]:
    """Return settings with folders of the test's own."""

    def make(**options: str) -> config.Settings:
        environ = {"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__ETT__RUN_ROOT": str(tmp_path / "runs")}
        environ |= {f"AIRFLOW__ETT__{name.upper()}": text for name, text in options.items()}
        return config.load(environ)

    return make


def in_days(days: int) -> int:
    """Return the time in so many days: the test's files are from now."""
    return time.time_ns() + days * DAY


def save(folder: Path, job: str, cursor: int) -> Path:
    """Commit a checkpoint and return its folder."""
    path = folder / folder_name(cursor, AttemptId(1))
    path.mkdir(parents=True)
    (path / "data").write_bytes(b"x" * 1000)
    commit(path, job=job, attempt=AttemptId(1), epoch=1, cursor=cursor)
    return path


def fail(run: RunDir, job: str) -> None:
    """End a job in failure."""
    log = LogWriter(run.launcher / "end.jsonl", job=job, writer="launcher-2")
    log.append("job_ended", {"state": "failed", "cause": "application"})
    log.close()


def shape(run: RunDir) -> list[str]:
    """Return what is right in a run directory."""
    return sorted(path.name for path in run.path.iterdir())


def test_an_old_run_directory_keeps_what_says_that_its_job_is_over(
    store: Store, settings: Any, tmp_path: Path, write_job: WriteJob
) -> None:
    root = tmp_path / "runs"
    run = write_job(root)
    run.cursor.write_bytes(b"")
    ingest_root(store, root)
    keep = settings(keep_run_dirs="90d")
    assert prune(keep, store, now_ns=in_days(80))[0].count == 0
    looked, files = prune(keep, store, now_ns=in_days(91), dry_run=True)
    assert (files.what, files.count) == ("files in the API", 0)
    assert (looked.what, looked.count) == ("run directories", 1)
    assert looked.bytes > 1000
    assert "nodes" in shape(run)
    assert prune(keep, store, now_ns=in_days(91)) == [looked, files]
    assert shape(run) == ["launcher", "pruned"]
    assert prune(keep, store, now_ns=in_days(91))[0].count == 0
    # A clear begins the next generation, and an ingest changes nothing.
    job = open_job(Root(str(root)), JobKey(**NAMES), checkpoint_root="", begun=False, **TRIES)
    assert job.log.key.generation == 2
    assert ingest_root(store, root).problems == ()
    with store.read() as connection:
        assert connection.scalars(select(tables.job.c.revision)).all() == [1]


def test_an_emptied_run_directory_is_not_measured_by_another_database(
    store: Store, settings: Any, tmp_path: Path, write_job: WriteJob
) -> None:
    run = write_job(tmp_path / "runs")
    ingest_root(store, tmp_path / "runs")
    prune(settings(keep_run_dirs="1d"), store, now_ns=in_days(2))
    url = f"sqlite:///{tmp_path}/other.db"
    upgrade(url)
    other = open_store(url)
    (problem,) = ingest_run_dir(other, run.path).problems
    assert "was pruned" in problem
    with other.read() as connection:
        assert connection.scalars(select(tables.job.c.job)).all() == []
    other.close()


@pytest.mark.parametrize("why", ["running", "recent", "unread", "other", "unknown", "alive"])
def test_what_is_left_alone(
    store: Store, settings: Any, tmp_path: Path, write_job: WriteJob, why: str
) -> None:
    root = tmp_path / "runs"
    now = in_days(91)
    run = write_job(root, ended=why != "running", begin_ns=now - S if why == "recent" else 10**18)
    if why != "unknown":
        ingest_root(store, root)
    if why == "unread":
        line = next(iter(run.launcher.glob("*.jsonl"))).read_text()
        (run.nodes / "more.jsonl").write_text(line)
    if why == "other":
        moved = root / "a" / "b" / "c" / "d"
        moved.mkdir(parents=True)
        run = RunDir(run.path.rename(moved / "g1"))
    if why == "alive":
        (run.nodes / "heartbeat-1.0-n0").touch()
        os.utime(run.nodes / "heartbeat-1.0-n0", ns=(now, now))
    before = shape(run)
    assert prune(settings(keep_run_dirs="90d"), store, now_ns=now)[0].count == 0
    assert shape(run) == before


def test_nothing_goes_through_a_link(
    store: Store, settings: Any, tmp_path: Path, write_job: WriteJob
) -> None:
    root = tmp_path / "runs"
    run = write_job(root)
    ingest_root(store, root)
    outside = tmp_path / "outside"
    run.nodes.rename(outside)
    run.nodes.symlink_to(outside)
    elsewhere = write_job(tmp_path / "elsewhere", dag_id="linked")
    ingest_run_dir(store, elsewhere.path)
    (root / "linked").symlink_to(
        tmp_path / "elsewhere" / elsewhere.path.relative_to(tmp_path / "elsewhere").parts[0]
    )
    prune(settings(keep_run_dirs="1d", keep_checkpoints="1d"), store, now_ns=in_days(2))
    assert len(list(outside.iterdir())) == 2
    assert "nodes" in shape(elsewhere)


def test_generations_go_together_and_a_live_one_keeps_them_all(
    store: Store, settings: Any, tmp_path: Path, write_job: WriteJob
) -> None:
    root = tmp_path / "runs"
    first = write_job(root)
    second = write_job(root, generation=2, ended=False)
    ingest_root(store, root)
    keep = settings(keep_run_dirs="1d")
    assert prune(keep, store, now_ns=in_days(2))[0].count == 0
    assert "nodes" in shape(first)
    fail(second, JobKey(**NAMES, generation=2).id)
    ingest_root(store, root)
    assert prune(keep, store, now_ns=in_days(2))[0].count == 2
    assert not first.path.exists()
    assert shape(second) == ["launcher", "pruned"]
    job = open_job(Root(str(root)), JobKey(**NAMES), checkpoint_root="", begun=False, **TRIES)
    assert job.log.key.generation == 3


def test_what_a_cleared_task_inherits_lives_as_long_as_keep_checkpoints_says(
    store: Store, settings: Any, tmp_path: Path, write_job: WriteJob
) -> None:
    """It failed an hour ago, and whoever clears it goes on from its checkpoint."""
    root = tmp_path / "runs"
    key = JobKey(**NAMES)
    run = write_job(root, ended=False)
    older, newest = (save(run.checkpoints, key.id, cursor) for cursor in (600, 1000))
    fail(run, key.id)
    ingest_root(store, root)

    def inherited() -> Any:
        return (open_job(Root(str(root)), key, checkpoint_root="", **TRIES).inherit or {})[
            "checkpoint"
        ]

    hour = time.time_ns() + 3600 * S
    both = settings(keep_run_dirs="1d", keep_checkpoints="30d")
    assert [one.count for one in prune(both, store, now_ns=hour)] == [0, 0, 0]
    assert older.exists()
    # The run directory is old enough, its checkpoints are not.
    assert [one.count for one in prune(both, store, now_ns=in_days(2))] == [0, 1, 0]
    assert shape(run) == ["checkpoints", "launcher", "pruned"]
    assert inherited() == str(newest)
    forever = settings(keep_run_dirs="1d")
    assert prune(forever, store, now_ns=in_days(9999))[0].count == 0
    assert inherited() == str(newest)
    superseded, whole, _files = prune(both, store, now_ns=in_days(31))
    assert (superseded.count, superseded.bytes, whole.count) == (1, 1000, 1)
    assert shape(run) == ["launcher", "pruned"]


def test_the_newest_checkpoint_and_the_anchor_stay(
    store: Store, settings: Any, tmp_path: Path, write_job: WriteJob
) -> None:
    key = JobKey(**NAMES)
    run = write_job(tmp_path / "runs")
    places = [run.checkpoints, tmp_path / "saved" / key.path]
    for place in places:
        for cursor in (600, 1000, 1500, 2000):
            save(place, key.id, cursor)
        (place / folder_name(1700, AttemptId(1))).mkdir()
        (place / "mine").mkdir()
    anchor = LogWriter(run.nodes / "anchor.jsonl", job=key.id, writer="t", attempt=AttemptId(2))
    fields = {"cursor": 1000, "checkpoint": f"file:///c/{folder_name(1000, AttemptId(1))}"}
    anchor.append("checkpoint_committed", {**fields, "anchor": True}, time_ns=1_790_000_095 * S)
    anchor.close()
    other = save(tmp_path / "saved" / "a" / "b" / "c" / "d" / "g1", key.id, 5)
    live = write_job(tmp_path / "runs", dag_id="live", ended=False)
    kept = [save(live.checkpoints, JobKey(**{**NAMES, "dag_id": "live"}).id, n) for n in (1, 2)]
    ingest_root(store, tmp_path / "runs")
    keep = settings(keep_checkpoints="30d", checkpoint_root=str(tmp_path / "saved"))
    (found,) = prune(keep, store, now_ns=in_days(31))
    assert (found.count, found.bytes) == (6, 4000)
    for place in places:
        assert [one.cursor for one in list_checkpoints(str(place))] == [1000, 2000]
        assert (place / "mine").exists()
    assert other.exists()
    assert all(path.exists() for path in kept)
    assert prune(keep, store, now_ns=in_days(31))[0].count == 0


def test_a_run_root_in_an_object_store_is_told(store: Store, settings: Any) -> None:
    keep = settings(keep_run_dirs="1d", keep_checkpoints="1d", run_root="memory://runs")
    _checkpoints, found, _files = prune(keep, store, now_ns=in_days(2))
    assert found.kept == ("memory://runs: an object store removes what is old by its own rules",)


def test_no_checkpoint_goes_while_the_newest_is_not_whole(
    store: Store, settings: Any, tmp_path: Path, write_job: WriteJob
) -> None:
    """R24: a loadable checkpoint exists at every instant."""
    run = write_job(tmp_path / "runs")
    older, newest = (save(run.checkpoints, JobKey(**NAMES).id, cursor) for cursor in (600, 1000))
    ingest_root(store, tmp_path / "runs")
    (newest / "data").write_bytes(b"x")
    (found,) = prune(settings(keep_checkpoints="30d"), store, now_ns=in_days(31))
    assert found.count == 0
    assert "missing or cut short" in found.kept[0]
    assert older.exists()


def test_a_removal_that_was_killed_goes_on(
    store: Store,
    settings: Any,
    tmp_path: Path,
    write_job: WriteJob,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = tmp_path / "runs"
    first, second = write_job(root), write_job(root, generation=2)
    ingest_root(store, root)
    keep = settings(keep_run_dirs="1d")
    discard = oldruns._discard
    for fatal in range(1, 8):
        calls = iter(range(1, 99))

        def die(path: Path, calls: Any = calls, fatal: int = fatal) -> None:
            if next(calls) == fatal:
                raise KeyboardInterrupt
            discard(path)

        monkeypatch.setattr(oldruns, "_discard", die)
        try:
            prune(keep, store, now_ns=in_days(2))
        except KeyboardInterrupt:
            assert second.launcher.exists()
            assert ingest_root(store, root).problems == ()
    monkeypatch.setattr(oldruns, "_discard", discard)
    prune(keep, store, now_ns=in_days(2))
    assert not first.path.exists()
    assert shape(second) == ["launcher", "pruned"]
    with store.read() as connection:
        assert connection.scalars(select(tables.job.c.revision)).all() == [1, 1]


def _app(folder: Path, name: str, *, state: str = "SUCCEEDED") -> Path:
    """Make the folder of an app that has run here."""
    app = AppDir(folder / name)
    (app.path / "logs").mkdir(parents=True)
    app.log("trainer", 0).write_text("hello\n")
    over = state != "RUNNING"
    ended = 1_790_000_100 * S if over else None
    app.write_status(Status(name, here(), None, state, "x", "", None, None, ended, ()))
    return app.path


def test_outputs_of_apps_that_are_over(
    store: Store, settings: Any, tmp_path: Path, write_job: WriteJob
) -> None:
    keep = settings(keep_outputs="30d")
    folder = keep.local_state_dir
    write_job(tmp_path / "runs")
    write_job(tmp_path / "runs", dag_id="live", ended=False)
    ingest_root(store, tmp_path / "runs")
    first, second = _app(folder, "app-1"), _app(folder, "app-2")
    foreign, running = _app(folder, "mine"), _app(folder, "app-3", state="RUNNING")
    live = JobKey(**{**NAMES, "dag_id": "live"}).id
    row = {"job": live, "submission": 9, "submitted_ns": 1, "app": "app-4"}
    store.write(lambda connection: connection.execute(insert(tables.submission), [row]))
    of_live = _app(folder, "app-4")
    # app-1 and app-2 are the live job's, too: it may ask for them.
    assert prune(keep, store, now_ns=in_days(31))[0].count == 0
    fail(RunDir(tmp_path / "runs" / JobKey(**{**NAMES, "dag_id": "live"}).path), live)
    ingest_root(store, tmp_path / "runs")
    (looked,) = prune(keep, store, now_ns=in_days(31), dry_run=True)
    assert looked.count == 2
    (folder / ".removed-app-9.1").mkdir()
    assert prune(keep, store, now_ns=in_days(31)) == [looked]
    assert sorted(p.name for p in folder.iterdir()) == ["app-3", "app-4", "mine"]
    assert not first.exists()
    assert not second.exists()
    assert foreign.exists()
    assert running.exists()
    assert of_live.exists()


def test_prunings_at_the_same_time_take_nothing_twice(
    store: Store, settings: Any, tmp_path: Path, write_job: WriteJob
) -> None:
    runs = [write_job(tmp_path / "runs", run_id=f"run-{n}") for n in range(10)]
    ingest_root(store, tmp_path / "runs")
    keep = settings(keep_run_dirs="1d", keep_events="1d", keep_outputs="1d")
    for number in range(10):
        _app(keep.local_state_dir, f"app-{number}")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: prune(keep, store, now_ns=in_days(2)), range(4)))
    assert not any(one.kept for kinds in found for one in kinds)
    assert all(shape(run) == ["launcher", "pruned"] for run in runs)
    assert sum(kinds[-1].count for kinds in found) == 190


def test_a_bad_age_names_its_option(settings: Any) -> None:
    for text in ("90", "d", "0d", "-1d", "1.5d", "90 days", "٣d", "99999999d"):
        with pytest.raises(ConfigurationError, match=r"\[ett\] keep_events: .*90d or 36h"):
            settings(keep_events=text)
    assert settings(keep_events="36h").keep_events == timedelta(hours=36)
    assert settings().keep_checkpoints is None


def test_a_folder_that_cannot_be_emptied_is_told(
    store: Store, tmp_path: Path, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "runs"
    write_job(root)
    ingest_root(store, root)

    def refuse(_path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("airflow_ett.store.oldruns._discard", refuse)
    found = prune_run_dirs(store, root, in_days(1), checkpoints_before_ns=None, dry_run=False)
    assert "Permission denied" in found.kept[0]
