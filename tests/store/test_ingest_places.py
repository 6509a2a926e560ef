"""Run directories in an object store become the same rows as those in a folder."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from airflow_ett.events import AttemptId, CursorFile, RunDir, read_log
from airflow_ett.storage import FolderStorage, Readable, open_readable
from airflow_ett.storage.objects import ObjectStorage
from airflow_ett.store import (
    IngestReport,
    Store,
    ingest_root,
    ingest_run_dir,
    open_store,
    queries,
    tables,
    upgrade,
)
from tests.s3 import new_bucket

WriteJob = Callable[..., RunDir]
S = 1_000_000_000
READ = (tables.source, tables.quarantine)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An SQLite store: the database makes no difference to places."""
    yield from _new_store(f"sqlite:///{tmp_path}/ett.db")


def _new_store(url: str) -> Iterator[Store]:
    upgrade(url)
    with closing(open_store(url)) as store:
        yield store


@pytest.fixture(params=["memory", "s3"])
def root(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URI of an empty run root."""
    if request.param == "s3":
        yield new_bucket(monkeypatch) + "/ett"
        return
    from fsspec.implementations.memory import MemoryFileSystem

    yield "memory://runs/ett"
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


def ship(run: RunDir, root: str, *, events: slice = slice(None), at_once: int = 3) -> Readable:
    """Put a run directory's events below a root, some at a time, and its cursor."""
    place = open_readable("/".join((root, *run.path.parts[-5:])))
    for log in run.logs():
        found = read_log(log).events[events]
        for begin in range(0, len(found), at_once):
            place.append(log.relative_to(run.path).as_posix(), found[begin : begin + at_once])
    if run.cursor.exists():
        place.write("cursor", run.cursor.read_bytes())
    return place


def _rows(store: Store) -> dict[str, Any]:
    """What is known of jobs, without how it was read and when."""
    content = {}
    for table in set(tables.metadata.sorted_tables) - set(READ):
        columns = [c for c in table.c if c.name not in ("updated_ns", "revision")]
        with store.read() as connection:
            rows = connection.execute(select(*columns).order_by(*table.primary_key)).all()
        content[table.name] = [tuple(row) for row in rows]
    return content


def _sources(store: Store) -> dict[str, int]:
    with store.read() as connection:
        return {row.path: row.offset for row in connection.execute(select(tables.source))}


def test_a_job_becomes_the_same_rows_as_from_a_folder(
    store: Store, root: str, tmp_path: Path, write_job: WriteJob
) -> None:
    run = write_job(tmp_path / "runs")
    place = ship(run, root)
    report = ingest_run_dir(store, place.place)
    assert (report.new_events, report.bad_lines, report.problems) == (19, 0, ())
    assert ingest_run_dir(store, place.place) == IngestReport()
    for other in _new_store(f"sqlite:///{tmp_path}/other.db"):
        ingest_run_dir(other, run.path)
        assert _rows(other) == _rows(store)
        assert _sources(other).keys() == _sources(store).keys()
    assert set(_sources(store).values()) == {2, 3}


def test_what_is_new_is_read_alone(
    store: Store, root: str, tmp_path: Path, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_job(tmp_path)
    place = ship(run, root, events=slice(3))
    assert ingest_run_dir(store, place.place).new_events == 9
    ship(run, root, events=slice(3, None), at_once=1)
    fetched: list[str] = []
    fs = place._fs  # type: ignore[attr-defined]
    cat = fs.cat

    def noted(paths: list[str], **options: Any) -> Any:
        fetched.extend(paths)
        return cat(paths, **options)

    monkeypatch.setattr(fs, "cat", noted)
    assert ingest_run_dir(store, place.place).new_events == 10
    assert fetched
    assert not [path for path in fetched if path.endswith("/00000000")]
    assert queries.jobs(store)[0].frozen


def test_a_root_is_searched_for_what_is_unread(
    store: Store, root: str, tmp_path: Path, write_job: WriteJob
) -> None:
    for number in range(3):
        ship(write_job(tmp_path, run_id=f"run-{number}"), root)
    ship(write_job(tmp_path, deployment="staging", run_id="run-9"), root)
    assert len(ingest_root(store, root, "default").jobs) == 3
    assert len(ingest_root(store, root + "/").jobs) == 1
    assert ingest_root(store, root) == IngestReport()
    assert ingest_root(store, f"{root}/none") == IngestReport()
    assert ingest_root(store, root, since_ns=2 * 10**18) == IngestReport()
    assert len(queries.jobs(store)) == 4


def test_corrupt_lines_are_quarantined_with_chunk_and_byte(
    store: Store, root: str, tmp_path: Path, write_job: WriteJob
) -> None:
    place = ship(write_job(tmp_path), root)
    assert isinstance(place, ObjectStorage)
    log = place.logs()[-1]
    chunk = f"{log}/{place.read_log(log).offset:08d}"
    place._fs.pipe_file(place._path(chunk), b"[1]\nno json")
    report = ingest_run_dir(store, place.place)
    assert (report.new_events, report.bad_lines) == (19, 2)
    with store.read() as connection:
        rows = connection.execute(select(tables.quarantine).order_by(tables.quarantine.c.offset))
        found = [(row.path, row.offset) for row in rows]
    name = "/".join((*place.place.split("/")[-5:], chunk))
    assert found == [(name, 0), (name, 4)]
    assert any(f"{name}, byte 4: not a line of JSON" in problem for problem in report.problems)
    assert queries.jobs(store)[0].state == "succeeded"
    assert ingest_run_dir(store, place.place) == IngestReport()


def test_the_open_interval_counts_and_is_not_stored(
    store: Store, root: str, tmp_path: Path, write_job: WriteJob
) -> None:
    run = write_job(tmp_path, ended=False)
    begin = 1_790_000_090 * S
    with closing(CursorFile(run.cursor)) as cursor:
        fields = (2, 0, 0, 0, 102, 7, 2500, 2500, begin, begin + 5 * S, 2000, 5, 5 * S, 0, 0)
        cursor.write(*fields, 0)
    place = ship(run, root)
    events = ingest_run_dir(store, place.place).new_events
    (job,) = queries.jobs(store)
    place.write("cursor", b"odd")
    ingest_run_dir(store, place.place)
    assert job.effective_ns - queries.jobs(store)[0].effective_ns == 5 * S
    assert events == 17


def test_a_heartbeat_is_judged_by_the_places_own_clock(
    store: Store, tmp_path: Path, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is an hour ahead of this computer, whose clock says what the training's did."""
    begin, now = 1_790_000_000 * S, [0]
    monkeypatch.setattr("airflow_ett.store.batch.time.time_ns", lambda: begin + now[0] * S)
    place = ship(write_job(tmp_path, ended=False), "memory://runs/heartbeats")
    place.write(f"nodes/{RunDir(tmp_path).heartbeat(AttemptId(2), 0).name}", b"")
    beat = [0]
    ahead = 3600 * S

    def time_ns(_: ObjectStorage, info: Any) -> int:
        """A heartbeat's time, or that of what was written just now."""
        at_s = beat[0] if "heartbeat-" in info["name"] else now[0]
        return begin + at_s * S + ahead

    monkeypatch.setattr(ObjectStorage, "_time_ns", time_ns)

    def wall_s(now_s: int, beat_s: int) -> int:
        now[0], beat[0] = now_s, beat_s
        ingest_run_dir(store, place.place)
        return queries.jobs(store)[0].wall_ns // S

    assert wall_s(120, 118) == 120
    assert wall_s(1000, 121) == 121
    assert wall_s(2000, 121) == 121


def test_a_database_that_is_away_loses_nothing(
    store: Store, root: str, tmp_path: Path, write_job: WriteJob
) -> None:
    """Events go on arriving meanwhile, and what was read before is not read again."""
    run = write_job(tmp_path / "runs")
    place = ship(run, root, events=slice(3))
    ingest_run_dir(store, place.place)
    file = tmp_path / "ett.db"
    store.close()
    away = file.rename(tmp_path / "away.db")
    ship(run, root, events=slice(3, None))
    with pytest.raises(Exception, match="There is no ETT database"):
        ingest_root(store, root)
    away.rename(file)
    assert ingest_root(store, root).new_events == 10
    assert queries.jobs(store)[0].frozen


def test_a_store_that_does_not_answer_stops_no_other_job(
    store: Store, root: str, tmp_path: Path, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = ship(write_job(tmp_path, run_id="closed"), root)
    ship(write_job(tmp_path, run_id="open"), root)
    look = ObjectStorage.logs

    def logs(place: ObjectStorage) -> list[str]:
        if place.place == closed.place:
            raise OSError(5, "SlowDown", place.place)
        return look(place)

    with monkeypatch.context() as slow:
        slow.setattr(ObjectStorage, "logs", logs)
        report = ingest_root(store, root)
    assert (len(report.jobs), len(report.problems)) == (1, 1)
    assert closed.place in report.problems[0]
    assert len(ingest_root(store, root).jobs) == 1


def test_several_jobs_are_waited_for_at_the_same_time(
    store: Store, tmp_path: Path, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store answers after a while: one job after the other, a fleet would take an hour."""
    for number in range(4):
        ship(write_job(tmp_path, run_id=f"run-{number}"), "memory://runs/together")
    met, look = threading.Barrier(4), ObjectStorage.logs

    def logs(place: ObjectStorage) -> list[str]:
        met.wait(timeout=20)
        return look(place)

    monkeypatch.setattr(ObjectStorage, "logs", logs)
    report = ingest_root(store, "memory://runs/together")
    assert (len(report.jobs), report.new_events, report.problems) == (4, 4 * 19, ())


def test_a_root_that_is_not_there_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    new_bucket(monkeypatch)
    report = ingest_root(store, "s3://no-such-bucket/ett")
    assert (report.jobs, len(report.problems)) == ((), 1)
    assert "bucket does not exist" in report.problems[0]


def test_a_folder_is_read_without_a_thread_and_without_a_write(
    store: Store, tmp_path: Path, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run directory that may only be read is ingested, and costs what it did."""
    run = write_job(tmp_path / "runs")
    run.heartbeat(AttemptId(1), 0).touch()

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a folder needs none of this")

    monkeypatch.setattr("airflow_ett.store.rundirs.ThreadPoolExecutor", refuse)
    monkeypatch.setattr("airflow_ett.storage.folder.draft", refuse)
    monkeypatch.setattr("airflow_ett.events.exclusive.draft", refuse)
    monkeypatch.setattr(FolderStorage, "now_ns", refuse)
    assert ingest_root(store, tmp_path / "runs").new_events == 19
