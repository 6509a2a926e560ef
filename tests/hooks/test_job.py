"""A try's hold on a job, and ending a job whose task failed for good."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from airflow_ett.errors import Fenced, JobLogError
from airflow_ett.events import Cause, JobKey
from airflow_ett.hooks.job import JobHold, end_job, try_began_ns
from airflow_ett.launch.limits import Limits
from airflow_ett.launch.opening import OpenJob, open_job
from airflow_ett.launch.request import Request
from airflow_ett.launch.root import Root

KEY = JobKey("default", "dag", "run", "train")
FIRST = {"try_number": 1, "max_tries": 3}
LIMITS = Limits(deadline_ns=9, start_timeout_s=30, unknown_grace_s=20)


def opened(root: Path) -> OpenJob:
    return open_job(Root(str(root)), KEY, checkpoint_root="", try_number=1, max_tries=0)


def test_a_hold_survives_json_with_its_limits(tmp_path: Path) -> None:
    request = Request("train", ["--m", "x"], "local_detached")
    hold = JobHold.of(opened(tmp_path), request, try_number=1, max_tries=0, limits=LIMITS)
    again = JobHold(**json.loads(json.dumps(asdict(hold))))
    assert again == hold
    assert Limits(**again.limits) == LIMITS


def test_a_hold_of_another_release_is_read(tmp_path: Path) -> None:
    request = Request("train", ["--m", "x"], "local_detached")
    hold = JobHold.of(opened(tmp_path), request, try_number=1, max_tries=0, limits=LIMITS)
    kept = json.loads(json.dumps(asdict(hold)))
    assert JobHold.read(kept) == hold
    newer = {**kept, "colour": "red", "request": {**kept["request"], "colour": "red"}}
    assert JobHold.read(newer) == hold
    older = {**kept, "deadline_ns": 9}
    del older["limits"]
    assert Limits(**JobHold.read(older).limits) == Limits(deadline_ns=9)
    del older["request"]
    with pytest.raises(JobLogError, match=r"another release of airflow-ett.*clear the task"):
        JobHold.read(older)


def test_r06_a_job_of_a_later_try_is_not_ended(tmp_path: Path) -> None:
    log = opened(tmp_path).log
    log.claim(try_number=2, max_tries=3, mode="task")
    log.append("job_opened", {"scheduler": "fake"})
    with pytest.raises(Fenced, match="try 2"):
        end_job(opened(tmp_path), **FIRST, cause=Cause.LAUNCH, text="", wait_s=0)
    later = {"try_number": 2, "max_tries": 3}
    with pytest.raises(Fenced):
        end_job(opened(tmp_path), **later, cause=Cause.LAUNCH, text="", wait_s=0, after=0)
    assert log.newest() == 1


def test_a_job_that_never_began_needs_no_end(tmp_path: Path) -> None:
    assert end_job(opened(tmp_path), **FIRST, cause=Cause.LAUNCH, text="", wait_s=0) is None
    assert opened(tmp_path).log.newest() == 0


def test_a_try_begins_with_its_first_task_process(tmp_path: Path) -> None:
    began = []
    for number, mode in ((1, "task"), (1, "again"), (2, "task"), (2, "trigger"), (2, "again")):
        log = opened(tmp_path).log
        log.claim(try_number=number, max_tries=3, mode=mode)
        began.append(log.launcher_events()[-1].time_ns)
    log = opened(tmp_path).log
    assert [try_began_ns(log, number) for number in (1, 2, 3)] == [began[0], began[2], None]


def test_a_trigger_begins_no_job_where_the_run_root_is_not_mounted(tmp_path: Path) -> None:
    job, request = opened(tmp_path), Request("train", ["--m", "x"], "local_detached")
    hold = JobHold.of(job, request, try_number=1, max_tries=0, limits=LIMITS)
    with pytest.raises(JobLogError, match=r"run_root mounted on this triggerer"):
        hold.take("trigger", 1.0)
    assert job.log.newest() == 0
    hold.take("task", 1.0)
    hold.take("trigger", 1.0)
    assert job.log.newest() == 2
