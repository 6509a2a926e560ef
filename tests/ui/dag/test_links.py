"""Where links lead: the tab that shows the job, and files with the same jobs."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from airflow_ett.api import cursors
from airflow_ett.store.queries import JobPlace
from airflow_ett.ui.dag.links import csv_files, job_href
from airflow_ett.ui.data import Job, jobs_of

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def job(report: Make) -> Job:
    (job,) = jobs_of([report(run_id="r", task_id="train")])
    return job


def test_the_only_job_of_a_run_is_on_the_runs_tab(job: Job) -> None:
    assert job_href("ranker", job, one_task=True) == "../../dags/ranker/runs/r/plugin/ett-run"


@pytest.mark.parametrize(
    ("changes", "one_task", "expected"),
    [
        ({}, False, "/tasks/train/plugin/ett-task"),
        ({"alone": False}, True, "/tasks/train/plugin/ett-task"),
        ({"map_index": 0}, True, "/tasks/train/mapped/0/plugin/ett-task"),
        ({"map_index": 12, "alone": False}, False, "/tasks/train/mapped/12/plugin/ett-task"),
    ],
)
def test_one_of_several_is_on_the_task_instances_tab(
    job: Job, changes: dict[str, Any], one_task: bool, expected: str
) -> None:
    href = job_href("ranker", replace(job, **changes), one_task=one_task)
    assert href == f"../../dags/ranker/runs/r{expected}"


def test_names_stay_within_their_part_of_the_path(job: Job) -> None:
    hostile = "../../x?y#z/\u202e\"'<b>%2F"
    href = job_href(hostile, replace(job, run_id=hostile, task_id=hostile), one_task=False)
    parts = urlsplit(href)
    assert (parts.query, parts.fragment) == ("", "")
    assert [unquote(part) for part in parts.path.split("/")[2:]] == [
        *("dags", hostile, "runs", hostile, "tasks", hostile, "plugin", "ett-task"),
    ]


def test_files_follow_each_other_in_the_order_of_the_api(report: Make) -> None:
    jobs = jobs_of([report(job=f"{i:04}", run_id=f"r{i}", begin_ns=i // 2) for i in range(1_001)])
    files = csv_files("ran/ker", "tr&in", jobs)
    assert [(file.first, file.last) for file in files] == [(1, 500), (501, 1000), (1001, 1001)]
    ordered = sorted(jobs, key=lambda job: (-job.begin_ns, job.job))
    for file in files:
        query = {name: value[0] for name, value in parse_qs(urlsplit(file.href).query).items()}
        assert (query["dag_id"], query["task_id"]) == ("ran/ker", "tr&in")
        assert (query["since"], query["format"]) == ("0", "csv")
        assert int(query["limit"]) == file.last - file.first + 1
        place = cursors.decode(query["cursor"], JobPlace)
        before = ordered[file.first - 2] if file.first > 1 else None
        expected = (before.begin_ns, before.job) if before else (ordered[0].begin_ns, "")
        assert place == expected


def test_a_file_of_every_task_names_none(job: Job) -> None:
    (file,) = csv_files("ranker", None, [job])
    assert "task_id" not in file.href
    assert file.href.startswith("../api/v1/jobs?")
