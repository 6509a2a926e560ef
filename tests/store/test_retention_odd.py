"""Pruning meets folders that cannot be read, links, files that people keep, and Slurm's apps."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_ett import config
from airflow_ett.events import JobKey, RunDir
from airflow_ett.fleet.prune import prune
from airflow_ett.store import Store, ingest_root, open_store, upgrade
from tests.store.test_retention_runs import NAMES, S, in_days, save, shape

WriteJob = Callable[..., RunDir]


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """A store on SQLite: files are what this is about."""
    url = f"sqlite:///{tmp_path}/ett.db"
    upgrade(url)
    store = open_store(url)
    yield store
    store.close()


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., config.Settings]:
    """Return settings with folders of the test's own."""

    def make(**options: str) -> config.Settings:
        options = {"run_root": str(tmp_path / "runs"), **options}
        environ = {f"AIRFLOW__ETT__{name.upper()}": text for name, text in options.items()}
        return config.load({"AIRFLOW_HOME": str(tmp_path), **environ})

    return make


def test_one_task_instance_that_cannot_be_looked_into_does_not_keep_the_others(
    store: Store,
    settings: Any,
    tmp_path: Path,
    write_job: WriteJob,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = tmp_path / "runs"
    first, second = write_job(root), write_job(root, dag_id="zoo")
    saved = [save(run.checkpoints, key.id, 1) for run, key in _keyed(first, second)]
    ingest_root(store, root)
    listed = Path.iterdir

    def closed(path: Path) -> Any:
        if path in (first.launcher, first.checkpoints):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", closed)
    keep = settings(keep_run_dirs="1d", keep_checkpoints="1d")
    checkpoints, runs, _files = prune(keep, store, now_ns=in_days(2))
    assert "Permission denied" in checkpoints.kept[0]
    assert "Permission denied" in runs.kept[0]
    assert runs.count == 1
    monkeypatch.undo()
    assert shape(second) == ["launcher", "pruned"]
    assert saved[0].exists()


def _keyed(first: RunDir, second: RunDir) -> list[tuple[RunDir, JobKey]]:
    return [(first, JobKey(**NAMES)), (second, JobKey(**{**NAMES, "dag_id": "zoo"}))]


@pytest.mark.parametrize("linked", [False, True])
def test_what_people_keep_among_the_checkpoints_is_kept_as_these_are(
    store: Store, settings: Any, tmp_path: Path, write_job: WriteJob, linked: bool
) -> None:
    """A folder on a larger disk, or a file of one's own beside the saves."""
    run = write_job(tmp_path / "runs")
    folder = tmp_path / "large" if linked else run.checkpoints
    folder.mkdir()
    if linked:
        run.checkpoints.symlink_to(folder)
        save(folder, JobKey(**NAMES).id, 1000)
    else:
        (folder / "model.onnx").write_bytes(b"x")
    ingest_root(store, tmp_path / "runs")
    assert prune(settings(keep_run_dirs="1d"), store, now_ns=in_days(999))[0].count == 1
    assert shape(run) == ["checkpoints", "launcher", "pruned"]
    assert len(list(run.checkpoints.iterdir())) == 1
    # Beyond keep_checkpoints they go with it, but nothing goes through a link.
    both = settings(keep_run_dirs="1d", keep_checkpoints="1d")
    assert prune(both, store, now_ns=in_days(999))[1].count == 1
    assert shape(run) == ["launcher", "pruned"]
    assert folder.exists() is linked


def test_a_file_of_ones_own_in_a_former_generation_does_not_keep_the_later_ones(
    store: Store, settings: Any, tmp_path: Path, write_job: WriteJob
) -> None:
    root = tmp_path / "runs"
    first, second = write_job(root), write_job(root, generation=2)
    (first.path / "notes.txt").write_text("mine")
    ingest_root(store, root)
    keep = settings(keep_run_dirs="1d")
    assert prune(keep, store, now_ns=in_days(2))[0].count == 2
    assert shape(first) == ["notes.txt", "pruned"]
    assert ingest_root(store, root).problems == ()
    third = write_job(root, generation=3)
    ingest_root(store, root)
    assert prune(keep, store, now_ns=in_days(2))[0].count == 2
    assert shape(first) == ["notes.txt", "pruned"]
    assert not second.path.exists()
    assert shape(third) == ["launcher", "pruned"]


def test_a_checkpoint_root_that_nobody_knows_does_not_keep_the_rest(
    store: Store, settings: Any, tmp_path: Path, write_job: WriteJob
) -> None:
    write_job(tmp_path / "runs")
    ingest_root(store, tmp_path / "runs")
    keep = settings(keep_run_dirs="1d", keep_checkpoints="1d", checkpoint_root="nosuch://bucket")
    checkpoints, runs, _files = prune(keep, store, now_ns=in_days(2))
    assert "[ett] checkpoint_root: " in checkpoints.kept[0]
    assert runs.count == 1


def test_outputs_of_slurms_apps_that_nobody_writes_to(
    store: Store, settings: Any, tmp_path: Path, write_job: WriteJob
) -> None:
    keep = settings(keep_outputs="30d")
    write_job(tmp_path / "runs")
    ingest_root(store, tmp_path / "runs")

    def app(name: str, *, written_ns: int = 1_790_000_100 * S) -> Path:
        folder = keep.slurm_state_dir / name
        (folder / "logs").mkdir(parents=True)
        for file in ("app.json", "logs/trainer-0"):
            (folder / file).write_text("{}")
        for path in (folder / "app.json", folder / "logs" / "trainer-0", folder / "logs", folder):
            os.utime(path, ns=(written_ns, written_ns))
        return folder

    over, foreign, busy = app("app-1"), app("mine"), app("app-2", written_ns=in_days(20))
    (half := keep.slurm_state_dir / "app-3").mkdir()
    (looked,) = prune(keep, store, now_ns=in_days(31), dry_run=True)
    assert looked.count == 1
    assert prune(keep, store, now_ns=in_days(31)) == [looked]
    assert not over.exists()
    assert all(path.exists() for path in (foreign, busy, half))
