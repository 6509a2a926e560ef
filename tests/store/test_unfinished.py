"""The jobs that a reaper has to look at."""

from collections.abc import Callable
from pathlib import Path

from airflow_ett.events import JobKey, RunDir
from airflow_ett.store import Store, ingest_root
from airflow_ett.store.unfinished import unfinished

S = 1_000_000_000
BEGIN = 1_790_000_000 * S


def test_a_deployments_jobs_that_have_not_ended_come_oldest_first(
    store: Store, tmp_path: Path, write_job: Callable[..., RunDir]
) -> None:
    later, earlier = BEGIN + 86_400 * S, BEGIN
    write_job(tmp_path, run_id="done")
    write_job(tmp_path, run_id="b", ended=False, begin_ns=later, map_index=3, generation=2)
    write_job(tmp_path, run_id="c", ended=False, begin_ns=earlier)
    write_job(tmp_path, run_id="d", ended=False, deployment="staging")
    ingest_root(store, tmp_path)
    assert unfinished(store, "default") == [
        JobKey("default", "ranker", "c", "train"),
        JobKey("default", "ranker", "b", "train", 3, 2),
    ]
    assert unfinished(store, "nowhere") == []
