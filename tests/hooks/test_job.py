"""A try's hold on a job, and closing a job that failed for good."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from airflow_ett.events import Cause, JobKey
from airflow_ett.hooks.job import JobHold, end_job
from airflow_ett.launch.former import Former
from airflow_ett.launch.limits import Limits
from airflow_ett.launch.opening import OpenJob, open_job
from airflow_ett.launch.request import Request

KEY = JobKey("default", "dag", "run", "train")
LIMITS = Limits(deadline_ns=9, start_timeout_s=30, unknown_grace_s=20)


def opened(root: Path) -> OpenJob:
    return open_job(root, KEY, checkpoint_root="", try_number=1, max_tries=0)


def test_a_hold_survives_json_with_its_limits(tmp_path: Path) -> None:
    request = Request("train", ["--m", "x"], "local_detached")
    hold = JobHold.of(opened(tmp_path), request, try_number=1, max_tries=0, limits=LIMITS)
    again = JobHold(**json.loads(json.dumps(asdict(hold))))
    assert again == hold
    assert Limits(**again.limits) == LIMITS


def test_a_job_closed_at_a_timeout_while_its_app_is_still_ending(tmp_path: Path) -> None:
    log = opened(tmp_path).log
    claim = log.claim(try_number=1, max_tries=0, mode="task")
    app = {"app": "a", "digest": "d", "layer": "first", "try": 1, "resume_cursor": 0}
    log.append("job_opened", {"scheduler": "fake"})
    log.intend(claim, 1, app)
    log.append("submitted", {"submission": 1, "handle": "fake://a", **app})
    log.append("cancel_requested", {"submission": 1, "reason": "timeout", "text": "Too long."})
    key, run_dir = asdict(KEY), str(log.run_dir.path)
    end_job(key, run_dir, try_number=1, max_tries=0, cause=Cause.TIMEOUT)
    (ended,) = (event for event in log.launcher_events() if event.kind == "attempt_ended")
    assert ended.data["cause"] == "timeout"
    assert ended.data["evidence"]["text"] == "Too long. It was still ending."
    following = opened(tmp_path)
    assert following.log.key.generation == 2
    assert following.former == Former("a", "fake://a", "fake")
