"""Published versions: what publishing apart from the trainer released, and what it says."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ett.metric.report import render

SECOND = 10**9
WHOLE = {
    **{"version": "7", "uri": "s3://m/ranker/7", "name": "ranker", "registry": "s3://m"},
    **{"begin": 20 * SECOND, "end": 50 * SECOND, "checkpoint": "s3://c/9", "cursor": 9},
    **{"bytes": 4096, "digest": "ab", "existed": False},
}


def _ended(history: Any) -> Any:
    """A training of 10 s on 8 accelerators."""
    history.open("local").submit(0).session(0, 0).train(0, 10, (0, 10)).session_ended(10)
    return history.ended(10, None).job_ended(10)


def _release(history: Any, *told: dict[str, Any]) -> Any:
    for number, data in enumerate(told):
        history.add("published", 60 + number, data)
    return history.measure()


def test_all_that_was_told_is_kept_and_its_time_is_released(history: Any) -> None:
    metric = _release(_ended(history), WHOLE)
    assert metric.as_dict()["published"] == [WHOLE | {"released_ns": 30 * SECOND}]
    assert metric.released_ns == 30 * SECOND
    assert metric.wall_ns == 10 * SECOND


def test_each_version_counts_also_one_of_a_running_training(history: Any) -> None:
    history.open("local").submit(0).session(0, 0).train(0, 100, (0, 10))
    metric = _release(history, WHOLE, WHOLE | {"version": "8", "end": 21 * SECOND})
    assert not metric.frozen
    assert metric.released_ns == 31 * SECOND


@pytest.mark.parametrize(
    "told",
    [
        {"existed": True},
        {"begin": None},
        {"end": "soon"},
        {"end": 19 * SECOND},
    ],
)
def test_what_was_only_found_or_has_no_length_releases_nothing(
    history: Any, told: dict[str, Any]
) -> None:
    metric = _release(_ended(history), WHOLE | told)
    assert (metric.released_ns, metric.published[0].released_ns) == (0, 0)


def test_publishing_in_the_trainer_releases_nothing(history: Any) -> None:
    history.open("local").submit(0).session(0, 0).train(0, 10, (0, 10))
    history.phase("publish", 10, 40).session_ended(40).ended(40, None).job_ended(40)
    metric = history.measure()
    assert metric.released_ns == 0
    assert metric.held_components_ns["shutdown"] == 30 * SECOND


def test_the_report_says_what_was_released_beside_what_shutdown_held(history: Any) -> None:
    again = WHOLE | {"version": "8\x1b", "name": None, "existed": True}
    hour = WHOLE | {"end": 3620 * SECOND}
    lines = render([_release(_ended(history), hour, again).as_dict()]).replace("\u00a0", " ")
    assert lines.splitlines()[-3:] == [
        "published: ranker 7, 1970-01-01 01:00:20 UTC, took 1 h 00 m",
        "published: 8\\x1b, 1970-01-01 00:00:50 UTC, was there",
        "accelerator-hours: 8.0 released by publishing apart, 0.0 held in shutdown",
    ]


def test_the_report_counts_no_hours_where_there_are_no_accelerators(history: Any) -> None:
    result = _release(_ended(history), WHOLE).as_dict() | {"accelerators": 0}
    assert render([result]).splitlines()[-1].startswith("published: ranker 7")
