"""Job identity and the context in ``ETT_JOB``."""

import base64
import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.errors import EventLogError
from airflow_ett.events import JobContext, JobKey, slug

names = st.text(min_size=1, max_size=250)
keys = st.builds(JobKey, names, names, names, names, st.integers(-1, 5000), st.integers(1, 99))


@given(keys, keys)
def test_different_keys_have_different_ids_and_paths(one: JobKey, other: JobKey) -> None:
    assert (one == other) == (one.id == other.id)
    assert (one == other) == (one.path == other.path)


@given(keys)
def test_a_path_stays_below_its_root_and_within_file_name_limits(key: JobKey) -> None:
    assert not key.path.is_absolute()
    assert len(key.path.parts) == 5
    assert all(re.fullmatch(r"[a-z0-9-]{1,49}", part) for part in key.path.parts)


def test_r04_mapped_siblings_stay_apart() -> None:
    siblings = {JobKey("d", "dag", "run", "task", index).id for index in (-1, 0, 1, 2)}
    assert len(siblings) == 4
    assert JobKey("d", "dag", "run", "t", 1).path != JobKey("d", "dag", "run", "t[1]").base / "x"


def test_r37_names_that_differ_late_differ() -> None:
    assert slug("a" * 100 + "b" + "a" * 99) != slug("a" * 200)


@given(keys, st.text(max_size=40))
def test_a_context_survives_a_comma_hostile_environment(key: JobKey, text: str) -> None:
    context = JobContext(key, 3, "/run,dir", text, 7, resume=text, hwm=12, grace_s=1.5)
    encoded = context.encode()
    assert re.fullmatch(r"[A-Za-z0-9_-]+", encoded)
    assert JobContext.decode(encoded) == context


@pytest.mark.parametrize(("later", "place"), [("log", "https://api"), ("cache", "/c/d/dag")])
def test_a_context_of_before_has_its_log_in_the_run_directory_and_keeps_no_caches(
    later: str, place: str
) -> None:
    context = JobContext(JobKey("d", "dag", "run", "task"), 1, "/run", "/c", 1)
    told = replace(context, **{later: place}).encode()
    fields = json.loads(base64.urlsafe_b64decode(told + "=" * (-len(told) % 4)))
    assert fields.pop(later) == place
    old = base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")
    assert JobContext.decode(old) == context


@pytest.mark.parametrize("text", ["", "???", "e30", "bm90IGpzb24"])
def test_what_is_no_context_is_refused(text: str) -> None:
    with pytest.raises(EventLogError, match="ETT_JOB"):
        JobContext.decode(text)
