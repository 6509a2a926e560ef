"""Which checkpoint a trainer starts from."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_ett import checkpoints
from airflow_ett.errors import CheckpointError
from airflow_ett.events import AttemptId, JobContext
from airflow_ett.trainer.restoring import choose


def saved(root: Path, cursor: int) -> checkpoints.Checkpoint:
    path = root / checkpoints.folder_name(cursor, AttemptId(1))
    path.mkdir(parents=True)
    (path / ".metadata").write_bytes(b"x")
    return checkpoints.commit(path, job="j", attempt=AttemptId(1), epoch=1, cursor=cursor)


def test_resume_says_where_a_job_begins_and_its_own_checkpoints_where_it_goes_on(
    job: Any, tmp_path: Path
) -> None:
    left = saved(tmp_path / "left", 50)
    named = saved(tmp_path / "named", 70)
    inherits = replace(job.context, inherit=left.uri)
    starts = {"auto": (left, False), "never": None, named.uri: (named, False)}
    for resume, start in starts.items():
        assert choose(replace(inherits, resume=resume)) == start
    own = saved(Path(job.context.checkpoints), 10)
    for resume in starts:
        assert choose(replace(inherits, resume=resume)) == (own, False)


def test_without_a_start_the_weights_of_another_training_are_taken(
    job: Any, tmp_path: Path
) -> None:
    source = saved(tmp_path / "yesterday", 50)
    context = replace(job.context, init_from=source.uri)
    assert choose(context) == (source, True)
    assert choose(replace(context, inherit=source.uri)) == (source, False)


def test_a_job_whose_checkpoints_are_away_does_not_start_anew(job: Any) -> None:
    context = replace(job.context, resume_cursor=50)
    for resume in ("auto", "never"):
        problem = choose(replace(context, resume=resume))
        assert isinstance(problem, CheckpointError)
        for told in ("cursor 50", context.checkpoints, "mounted on", os.uname().nodename):
            assert told in str(problem)


def test_a_damaged_newest_checkpoint_is_passed_over_for_an_older_one(job: Any) -> None:
    older, newest = (saved(Path(job.context.checkpoints), cursor) for cursor in (30, 50))
    (newest.path / ".metadata").write_bytes(b"y")
    context = replace(job.context, resume_cursor=50)
    assert choose(context) == (older, False)
    (older.path / ".metadata").write_bytes(b"y")
    assert "no intact one" in str(choose(context))


def test_a_context_without_the_launchers_cursor_is_read(job: Any) -> None:
    text = job.context.encode()
    fields = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    del fields["resume_cursor"]
    old = base64.urlsafe_b64encode(json.dumps(fields).encode()).decode()
    assert JobContext.decode(old) == job.context


def test_a_named_checkpoint_that_is_missing_or_damaged_is_an_error_never_a_fresh_start(
    job: Any, tmp_path: Path
) -> None:
    source = saved(tmp_path / "named", 50)
    (source.path / ".metadata").write_bytes(b"y")
    for uri in (source.uri, str(tmp_path / "nowhere"), "nowhere://bucket/x"):
        problem = choose(replace(job.context, resume=uri))
        assert isinstance(problem, CheckpointError)
        assert "cannot resume" in str(problem)
