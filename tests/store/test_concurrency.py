"""Field report R35: several processes write at once while others read."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import func, select

from airflow_ett.events import RunDir
from airflow_ett.store import Store, ingest_run_dir, queries, tables

PROCESSES = 8
EVENTS = 200

_WRITER = """
import sys
from pathlib import Path
from airflow_ett.events import LogWriter, RunDir
from airflow_ett.store import ingest_run_dir, open_store

url, folder, job, number, events = sys.argv[1:]
store, run = open_store(url), RunDir(Path(folder))
log = LogWriter(run.nodes / f"w{number}.jsonl", job=job, writer=f"w{number}")
for n in range(int(events)):
    log.append("note", {"n": n})
    if n % 50 == 49:
        ingest_run_dir(store, run.path)
"""


def test_r35_eight_processes_ingest_one_job_while_it_is_read(
    store: Store, url: str, tmp_path: Path, write_job: Callable[..., RunDir]
) -> None:
    run = write_job(tmp_path)
    ingest_run_dir(store, run.path)
    (before,) = queries.jobs(store)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, url, run.path, before.job, str(number), str(EVENTS)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    while any(writer.poll() is None for writer in writers):
        (row,) = queries.jobs(store)
        assert row.result == before.result
        time.sleep(0.05)
    errors = [writer.communicate()[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * PROCESSES, errors
    ingest_run_dir(store, run.path)
    event = tables.event.c
    count = select(event.writer, func.count(), func.count(event.seq.distinct()))
    query = count.where(event.kind == "note").group_by(event.writer)
    with store.read() as connection:
        found = {row[0]: (row[1], row[2]) for row in connection.execute(query)}
    assert found == {f"w{number}": (EVENTS, EVENTS) for number in range(PROCESSES)}
