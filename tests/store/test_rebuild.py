"""The projection made again from logs, exports and stored events: the same rows."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, delete, select, text, update

from airflow_ett.errors import ConfigurationError
from airflow_ett.events import JobKey, LogWriter, RunDir
from airflow_ett.fleet import roll_up
from airflow_ett.store import Store, ingest_root, ingest_run_dir, open_store, tables, upgrade
from airflow_ett.store.export import export
from airflow_ett.store.oldruns import prune_run_dirs
from airflow_ett.store.rebuild import rebuild
from airflow_ett.store.retention import prune_events

WriteJob = Callable[..., RunDir]
Rows = dict[str, list[Any]]
on_sqlite = pytest.mark.parametrize("empty_url", ["sqlite"], indirect=True)
S = 1_000_000_000
END = 1_790_000_100 * S
AGAIN = {"revision", "updated_ns", "exported_ns", "exported_events", "pruned_events"}
"""Columns of ``ett_job`` that a rebuild does not make: they tell of the past."""


def dump(store: Store, *, without: tuple[str, ...] = ()) -> Rows:
    """Return all rows of all tables, but for the columns that tell of the past."""
    found = {}
    with store.read() as connection:
        for table in tables.metadata.sorted_tables:
            if table.name not in without:
                got = connection.execute(select(table)).mappings()
                clean = [{n: v for n, v in row.items() if n not in AGAIN} for row in got]
                found[table.name] = sorted(json.dumps(row, default=str) for row in clean)
    return found


@pytest.fixture
def root(tmp_path: Path, write_job: WriteJob) -> Path:
    """A run root with jobs of many kinds."""
    root = tmp_path / "runs"
    write_job(root)
    write_job(root, generation=2, begin_ns=END + 3600 * S)
    write_job(root, dag_id="other", accelerators=0, begin_ns=END + 90_000 * S)
    write_job(root, dag_id="größe <b>'\"", run_id="x" * 250, map_index=3)
    bad = write_job(root, run_id="bad")
    with next(bad.logs()).open("a") as log:
        log.write("nonsense\n{}\n")
    published = write_job(root, run_id="published")
    log_ = LogWriter(
        published.launcher / "p.jsonl", job=_id(run_id="published"), writer="publish-1"
    )
    log_.append("published", {"version": "7", "uri": "file:///m/7"}, time_ns=END + S)
    log_.close()
    return root


def _id(**key: Any) -> str:
    names = {"deployment": "default", "dag_id": "ranker", "run_id": "run-1", "task_id": "train"}
    return JobKey(**{**names, **key}).id


@pytest.fixture
def filled(store: Store, root: Path) -> Rows:
    """All rows of a store that has ingested the root and rolled it up."""
    ingest_root(store, root)
    roll_up(store, timezone="UTC")
    rows = dump(store)
    assert all(rows[table.name] for table in (*tables.PROJECTED, tables.rollup))
    return rows


def _revisions(store: Store) -> set[int]:
    with store.read() as connection:
        return set(connection.scalars(select(tables.job.c.revision)))


def test_into_an_empty_database_and_in_place(
    store: Store, url: str, tmp_path: Path, root: Path, filled: Rows
) -> None:
    other_url = f"sqlite:///{tmp_path}/other.db"
    upgrade(other_url)
    other = open_store(other_url)
    done = rebuild(other, [root])
    assert (done.from_logs, done.from_events, done.kept) == (6, 0, 0)
    roll_up(other, timezone="UTC")
    assert dump(other) == filled
    other.close()

    def damage(connection: Connection) -> None:
        for table in (tables.phase, tables.attempt, tables.source, tables.rollup):
            connection.execute(delete(table))
        connection.execute(delete(tables.event).where(tables.event.c.kind == "interval"))
        connection.execute(delete(tables.job).where(tables.job.c.dag_id == "other"))
        connection.execute(update(tables.job).values(wall_ns=1, dag_id="wrong"))

    store.write(damage)
    done = rebuild(store, [root])
    assert (done.from_logs, done.kept) == (6, 0)
    roll_up(store, timezone="UTC")
    assert dump(store) == filled
    # A revision is for numbers that changed.
    assert _revisions(store) == {1}
    rebuild(store, [root])
    roll_up(store, timezone="UTC")
    assert dump(store) == filled


@on_sqlite
def test_from_an_export(store: Store, tmp_path: Path, filled: Rows) -> None:
    exported = export(store, tmp_path / "out")
    assert (exported.jobs, exported.events) == (6, len(filled["ett_event"]))
    files = sorted((tmp_path / "out").rglob("*.jsonl"))
    content = [path.read_bytes() for path in files]
    assert len(files) == 6
    assert export(store, tmp_path / "out") == exported
    assert [path.read_bytes() for path in files] == content
    assert sorted((tmp_path / "out").rglob("*.jsonl")) == files

    url = f"sqlite:///{tmp_path}/other.db"
    upgrade(url)
    other = open_store(url)
    assert rebuild(other, [tmp_path / "out"]).from_logs == 6
    roll_up(other, timezone="UTC")
    aside = ("ett_source", "ett_quarantine")
    assert dump(other, without=aside) == {n: r for n, r in filled.items() if n not in aside}
    other.close()


@on_sqlite
def test_an_export_of_some_dags(store: Store, tmp_path: Path, filled: Rows) -> None:
    assert export(store, tmp_path / "out", dag_ids=["other"]).jobs == 1
    (path,) = (tmp_path / "out").rglob("*.jsonl")
    assert JobKey("default", "other", "run-1", "train").path == path.parents[1].relative_to(
        tmp_path / "out"
    )


@on_sqlite
def test_an_export_never_goes_among_the_run_directories(store: Store, root: Path) -> None:
    for folder in (root, root / "out", root.parent / "x" / ".." / "runs"):
        with pytest.raises(ConfigurationError, match="another folder"):
            export(store, folder, not_below=root)


def test_jobs_whose_events_are_in_the_database_alone(
    store: Store, tmp_path: Path, root: Path, filled: Rows
) -> None:
    (tmp_path / "empty").mkdir()
    store.write(lambda connection: connection.execute(delete(tables.phase)))
    done = rebuild(store, [tmp_path / "empty"])
    assert (done.from_logs, done.from_events, done.kept) == (0, 6, 0)
    roll_up(store, timezone="UTC")
    assert dump(store) == filled


def test_what_was_pruned_stays_and_comes_back_from_a_whole_log(
    store: Store, tmp_path: Path, root: Path, filled: Rows
) -> None:
    events = ("ett_event",)
    rows = {name: found for name, found in filled.items() if name not in events}
    prune_events(store, 10**19 // 2, dry_run=False)
    (tmp_path / "empty").mkdir()
    done = rebuild(store, [tmp_path / "empty"])
    assert (done.from_logs, done.from_events, done.kept) == (0, 0, 6)
    roll_up(store, timezone="UTC")
    assert dump(store, without=events) == rows
    assert rebuild(store, [root]).from_logs == 6
    roll_up(store, timezone="UTC")
    assert dump(store) == filled

    # Emptied run directories neither make new numbers nor take the events' place.
    prune_run_dirs(store, root, 10**19 // 2, checkpoints_before_ns=None, dry_run=False)
    done = rebuild(store, [root])
    assert (done.from_logs, done.from_events, done.kept) == (0, 6, 0)
    prune_events(store, 10**19 // 2, dry_run=False)
    assert rebuild(store, [root]).kept == 6
    roll_up(store, timezone="UTC")
    assert dump(store, without=events) == rows


@on_sqlite
def test_an_interrupted_rebuild_goes_on(
    store: Store, root: Path, filled: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(done: int, _total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rebuild(store, [root], progress=stop)
    done = rebuild(store, [root], resume=True)
    assert (done.from_logs, done.from_events, done.kept) == (2, 0, 0)
    roll_up(store, timezone="UTC")
    assert dump(store) == filled
    # What is left of one is made by any ingest, too.
    with pytest.raises(KeyboardInterrupt):
        rebuild(store, [root], progress=stop)
    ingest_root(store, root)
    roll_up(store, timezone="UTC")
    assert dump(store) == filled


def test_a_killed_rebuild_goes_on(store: Store, url: str, root: Path, filled: Rows) -> None:
    script = (
        "import os, sys; from airflow_ett.store import open_store;"
        "from airflow_ett.store.rebuild import rebuild\n"
        "def die(done, total):\n"
        "    if done == 3: os.kill(os.getpid(), 9)\n"
        "rebuild(open_store(sys.argv[1]), [sys.argv[2]], progress=die)"
    )
    done = subprocess.run([sys.executable, "-c", script, url, str(root)], check=False)
    assert done.returncode == -9
    assert rebuild(store, [root], resume=True).from_logs == 3
    roll_up(store, timezone="UTC")
    assert dump(store) == filled


@on_sqlite
def test_one_job_at_fault_does_not_stop_the_others(
    store: Store, tmp_path: Path, root: Path, filled: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_ett.store import rebuild as module

    def ingest(store: Store, place: str, folds: Any) -> Any:
        if "/other-" in place:
            raise OSError(5, "Input/output error")
        return ingest_run_dir(store, place, folds)

    monkeypatch.setattr(module, "ingest_run_dir", ingest)
    done = rebuild(store, [root])
    assert "Input/output error" in done.problems[0]
    assert (done.from_logs, done.from_events) == (5, 1)
    with store.read() as connection:
        marked = "SELECT COUNT(*) FROM ett_job WHERE mapping LIKE 'rebuild%'"
        assert connection.scalar(text(marked)) == 0
