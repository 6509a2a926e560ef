"""App names (field report R37)."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.events import JobKey
from airflow_ett.launch.names import app_name

VALID = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
TORCHX_SUFFIXES = len("-" + 14 * "x") + len("-trainer-9999-0")

text = st.text(min_size=1, max_size=250)
keys = st.builds(
    JobKey,
    deployment=text,
    dag_id=text,
    run_id=text,
    task_id=text,
    map_index=st.integers(-1, 10_000),
    generation=st.integers(1, 100),
)
submissions = st.integers(1, 9999)


@given(keys, submissions)
def test_a_name_is_valid_with_torchx_suffixes_and_stable(job: JobKey, submission: int) -> None:
    name = app_name(job, submission)
    assert VALID.fullmatch(name)
    assert "--" not in name
    assert len(name) + TORCHX_SUFFIXES <= 63
    assert name == app_name(job, submission)


@given(keys, keys, submissions, submissions)
def test_different_submissions_have_different_names(
    one: JobKey, other: JobKey, first: int, second: int
) -> None:
    same = (one, first) == (other, second)
    assert (app_name(one, first) == app_name(other, second)) is same


def test_ids_that_differ_only_far_behind_have_different_names() -> None:
    long = "Träning .Über DAG" * 12
    pair = [long[:100] + middle + long[101:200] for middle in "ab"]
    for field in ("dag_id", "task_id"):
        jobs = [replace(JobKey("d", "x", "r", "y"), **{field: value}) for value in pair]
        assert len({app_name(job, 1) for job in jobs}) == 2


def test_people_recognise_dag_and_submission() -> None:
    name = app_name(JobKey("prod", "Ranker", "r", "train"), 7)
    assert re.fullmatch(r"ett-ranker-train?-7-[0-9a-f]{12}|ett-ranker-[a-z]+-7-[0-9a-f]{12}", name)


def test_a_limit_without_room_for_uniqueness_is_refused() -> None:
    with pytest.raises(ValueError, match="limit of 40"):
        app_name(JobKey("d", "x", "r", "y"), 1, limit=40)


def test_a_job_begun_again_does_not_find_its_former_apps() -> None:
    job = JobKey("d", "x", "r", "y")
    assert app_name(job, 1, born_ns=1) != app_name(job, 1, born_ns=2)
