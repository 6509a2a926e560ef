"""What is kept between pages: bounded, and never another's."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.ui.dag.kept import Kept

Make = Callable[..., dict[str, Any]]


def test_each_asks_for_a_copy_of_its_own() -> None:
    kept = Kept()
    kept.keep("a", {"list": [1]})
    first = kept.get("a")
    assert first == {"list": [1]}
    first["list"].append(2)
    assert kept.get("a") == {"list": [1]}
    assert kept.get("b") is None


def test_the_oldest_go_first() -> None:
    kept = Kept(most=len('{"n":1}') * 2)
    kept.keep("a", {"n": 1})
    kept.keep("b", {"n": 2})
    assert kept.get("a") == {"n": 1}
    kept.keep("c", {"n": 3})
    assert kept.get("b") is None
    assert kept.get("a") == {"n": 1}
    kept.keep("huge", {"n": "x" * 100})
    assert [kept.get(key) for key in ("a", "c", "huge")] == [None] * 3


@given(st.lists(st.tuples(st.sampled_from("abc"), st.text(max_size=9)), max_size=30))
def test_what_is_found_is_what_was_kept_last(said: list[tuple[str, str]]) -> None:
    kept = Kept(most=60)
    last = {}
    for key, text in said:
        kept.keep(key, {"text": text})
        last[key] = {"text": text}
        assert kept.get(key) in (last[key], None)
    assert all(kept.get(key) in (value, None) for key, value in last.items())


def test_ended_jobs_are_read_once_and_live_ones_each_time(
    site: Any, report: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_ett.ui.clock import Clock
    from airflow_ett.ui.dag import reads
    from airflow_ett.ui.dag.period import PERIODS

    site.keep(report(job="ended"), report(job="live", state="running", frozen=False))
    asked: list[list[str]] = []
    read = reads.queries.result_parts
    monkeypatch.setattr(
        reads.queries,
        "result_parts",
        lambda store, jobs, names: asked.append(sorted(jobs)) or read(store, jobs, names),
    )
    span = PERIODS[0].span(0, Clock())
    pages = [
        reads.jobs(site.store, "ranker", task=None, period=PERIODS[0], span=span).within
        for _ in range(2)
    ]
    assert asked == [["ended", "live"], ["live"]]
    assert pages[0] == pages[1]
