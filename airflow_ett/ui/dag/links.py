"""Where the Dag tab's links lead; relative to ``/ett/dag/<dag>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import quote, urlencode

from airflow_ett.api import cursors
from airflow_ett.links.addresses import TaskAt
from airflow_ett.ui.data import Job

_FILE_ROWS = 500
"""As many jobs as the API lists at once."""


class File(NamedTuple):
    """A list of jobs as CSV: ``first`` to ``last`` of them, counted from 1."""

    href: str
    first: int
    last: int


def job_href(dag_id: str, job: Job, *, one_task: bool) -> str:
    """Return the address of the tab that shows a job.

    It is the run's where that has no other job, else the task instance's. ``one_task`` says whether
    the Dag trains in one task alone.
    """
    if job.alone and one_task and job.map_index < 0:
        dag, run = (quote(name, safe="") for name in (dag_id, job.run_id))
        return f"../../dags/{dag}/runs/{run}/plugin/ett-run"
    return f"../../{TaskAt(dag_id, job.run_id, job.task_id, job.map_index).ett_page}"


def csv_files(dag_id: str, task: str | None, jobs: Sequence[Job]) -> list[File]:
    """Return the files that hold these jobs, which are all that began in their time; newest first.

    ``task`` is the task that they are of, None where they are of every one.
    """
    return list(_files(dag_id, task, sorted(jobs, key=lambda job: (-job.begin_ns, job.job))))


def _files(dag_id: str, task: str | None, jobs: Sequence[Job]) -> Iterator[File]:
    for first in range(0, len(jobs), _FILE_ROWS):
        part = jobs[first : first + _FILE_ROWS]
        query = {"dag_id": dag_id, "since": str(jobs[-1].begin_ns), "limit": str(len(part))}
        if task is not None:
            query["task_id"] = task
        # The cursor is the job before; the first file's is just before the newest job.
        place = (jobs[first - 1].begin_ns, jobs[first - 1].job) if first else (part[0].begin_ns, "")
        query |= {"cursor": cursors.encode(place), "format": "csv"}
        yield File(f"../api/v1/jobs?{urlencode(query)}", first + 1, first + len(part))
