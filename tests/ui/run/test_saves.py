"""Checkpoints, compilations and published versions."""

from typing import Any

import pytest

from airflow_ett.ui.run.saves import Version, checkpoints, compiles, versions
from tests.ui.run.showing import SECOND, words

_STATES = {
    "succeeded": {"frozen": True, "state": "succeeded"},
    "live": {"frozen": False, "state": "running"},
}


def test_checkpoints_come_newest_first_with_the_best_interval(lively: Any) -> None:
    found = checkpoints(lively.result, show_all=False)
    assert (len(found.shown), found.total) == (7, 14)
    cursors = [row.cursor or 0 for row in found.shown]
    assert cursors == sorted(cursors, reverse=True)
    newest = found.shown[0]
    assert words(newest.size) == "42.0 GiB"
    assert (newest.blocking_ns, newest.upload_ns) == (17_200_000_000, 210 * SECOND)
    assert words(found.hint) == "14 saves; best interval 9 m 07 s, now 31 m 11 s"
    every = checkpoints(lively.result, show_all=True)
    assert len(every.shown) == 14
    assert every.shown[:7] == found.shown


def test_an_upload_that_an_interruption_cut_off_is_lost(lively: Any) -> None:
    states = [row.state for row in checkpoints(lively.result, show_all=True).shown]
    assert states.count(("warn", "Upload lost")) == 1
    assert states.count(("ok", "Committed")) == 13


def test_an_upload_under_way_is_not_lost_yet(lively: Any) -> None:
    *others, last = lively.result["checkpoints"]
    result = lively.result | {"checkpoints": [*others, last | {"committed_ns": None}]}
    assert checkpoints(result, show_all=False).shown[0].state == ("none", "Not committed")
    ended = [*result["attempts"][:-1], result["attempts"][-1] | {"cause": "preempted"}]
    found = checkpoints(result | {"attempts": ended}, show_all=False)
    assert found.shown[0].state == ("warn", "Upload lost")


def test_an_anchor_is_marked(lively: Any) -> None:
    *others, last = lively.result["checkpoints"]
    result = lively.result | {"checkpoints": [*others, last | {"anchor": True}]}
    assert checkpoints(result, show_all=False).shown[0].state == ("ok", "Anchor")


def test_without_failures_there_is_no_best_interval(lively: Any) -> None:
    found = checkpoints(lively.result | {"nof": 0}, show_all=False)
    assert words(found.hint) == "14 saves; one each 31 m 11 s of training"


def test_without_an_ett_there_is_no_interval_at_all(lively: Any) -> None:
    assert checkpoints(lively.result | {"ett_pct": None}, show_all=False).hint == "14 saves"


@pytest.mark.parametrize("name", ["wide", "quiet"])
def test_a_job_without_saves_has_none_to_show(name: str, request: pytest.FixtureRequest) -> None:
    result = request.getfixturevalue(name).result
    assert checkpoints(result, show_all=False).total == 0
    assert compiles(result, show_all=False).total == 0
    assert versions(result, show_all=False).total == 0


def test_compilations_tell_what_came_of_the_cache(lively: Any) -> None:
    found = compiles(lively.result, show_all=False)
    assert [(row.attempt, row.graph) for row in found.shown] == [
        *((1, "0/0"), (2, "0/0"), (2, "0/1"), (3, "0/0"), (3, "0/1"), (4, "0/0"), (4, "0/1"))
    ]
    assert found.shown[1].result == ("ok", "Hit")
    assert found.shown[2].result == ("none", "Recompile")
    assert found.shown[2].reason == "guard: batch.size(0) == 4096"
    assert words(found.hint) == "7 events, 43 m 32 s; 3 cache hits"


@pytest.mark.parametrize(
    ("hits", "misses", "reason", "result"),
    [
        (0, 1, None, ("bad", "Cold")),
        (3, 1, None, ("bad", "Cold")),
        (3, 0, None, ("ok", "Hit")),
        (3, None, "guard", ("none", "Recompile")),
        (0, 0, None, None),
        (None, None, None, None),
    ],
)
def test_the_result_of_a_compilation(
    lively: Any, hits: int | None, misses: int | None, reason: str | None, result: Any
) -> None:
    told = {"hits": hits, "misses": misses, "reason": reason, "attempt": [9, 9, 9]}
    row = lively.result["compiles"][0] | told
    (shown,) = compiles(lively.result | {"compiles": [row]}, show_all=False).shown
    assert (shown.result, shown.reason) == (result, reason or "")


def test_a_cold_compilation_tells_why_the_cache_did_not_spare_it(lively: Any) -> None:
    reasons = [row.reason for row in compiles(lively.result, show_all=False).shown]
    assert reasons[0] == "Compile cache missed (nothing is kept yet)"
    assert reasons[1] == reasons[3] == ""  # hits, the latter in spite of the cache's word
    assert reasons[2] == "guard: batch.size(0) == 4096"
    assert reasons[4] == "Compile cache unable (/cache can be written by others (mode 0777))"


def test_of_many_compilations_the_newest_are_shown(lively: Any) -> None:
    rows = [lively.result["compiles"][0] | {"id": str(number)} for number in range(40)]
    result = lively.result | {"compiles": rows}
    assert [row.graph for row in compiles(result, show_all=False).shown] == [
        str(number) for number in range(28, 40)
    ]
    assert len(compiles(result, show_all=True).shown) == 40


def test_what_runs_beside_the_training_is_told(lively: Any) -> None:
    row = lively.result["compiles"][0] | {"lane": "thread-2", "id": None, "attempt": [9, 9, 9]}
    (shown,) = compiles(lively.result | {"compiles": [row]}, show_all=False).shown
    assert (shown.beside, shown.graph, shown.attempt) == (True, "", None)


PUBLISHED = {
    **{"version": "1", "uri": "s3://models/1", "begin": SECOND, "end": 31 * SECOND},
    **{"name": "ranker", "registry": "s3://models", "checkpoint": "s3://c/9", "cursor": 9},
    **{"bytes": 2**30, "digest": "ab", "existed": False, "released_ns": 30 * SECOND},
}
NOTHING = dict.fromkeys(PUBLISHED) | {"existed": False, "released_ns": 0}


def test_versions_come_newest_first_with_what_each_released(lively: Any) -> None:
    found = versions(lively.result | {"published": [PUBLISHED, NOTHING]}, show_all=False)
    first, second = found.shown
    assert (first.version, first.address, first.took_ns, first.released) == ("", "", None, 0)
    assert second == Version(
        version="1",
        name="ranker",
        cursor=9,
        end_ns=31 * SECOND,
        took_ns=30 * SECOND,
        existed=False,
        size="1.0\u00a0GiB",
        released=30 * SECOND * 32,
        address="s3://models/1",
        web=False,
    )


def test_the_sum_stands_beside_what_the_end_of_the_job_held(lively: Any) -> None:
    hours = {"released_ns": 900 * SECOND, "held_components_ns": {"shutdown": 90 * SECOND}}
    result = lively.result | hours | {"published": [PUBLISHED]}
    assert versions(result, show_all=False).hint == (
        "8.0 accelerator-hours released; shutdown held 0.8"
    )
    assert versions(result | {"accelerators": 0}, show_all=False).hint == ""


def test_only_the_address_of_a_web_page_is_a_link(lively: Any) -> None:
    rows = [PUBLISHED | {"uri": uri} for uri in ("javascript:alert(1)", "https://registry/1")]
    shown = versions(lively.result | {"published": rows}, show_all=False).shown
    assert [row.web for row in shown] == [True, False]


def test_of_many_versions_the_newest_are_shown(lively: Any) -> None:
    rows = [PUBLISHED | {"version": str(number)} for number in range(9)]
    result = lively.result | {"published": rows}
    found = versions(result, show_all=False)
    assert [row.version for row in found.shown] == ["8", "7", "6", "5", "4", "3", "2"]
    assert (found.total, len(versions(result, show_all=True).shown)) == (9, 9)
