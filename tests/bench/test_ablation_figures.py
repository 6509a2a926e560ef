"""Figures of runs, their spread, and what must be equal in all rows."""

import pytest
from ablation.equal import checks
from ablation.figures import Spread, figures, spreads
from ablation.pace import at_pace, trained_ns

from airflow_ett.metric.plans.compare import compare
from tests.bench.made_runs import lives, made


def test_figures_of_a_run() -> None:
    attempts = lives((20, 2), first_batch_s=3, retry_s=10, publish_s=5)
    attempts[1] |= {"replay": 7, "checkpoint_save": 2, "compile_cache_load": 1}
    found = figures(made("a", *attempts).result, 600 * 10**9)
    assert found.tts == 23
    assert found.ttr == pytest.approx((1 + 10 + 2 + 1 + 3 + 7 + 1 + 10 + 2 + 3) / 2)
    assert (found.compile_first, found.compile_restart) == (20, 2.5)
    assert (found.blocking, found.repeated, found.shutdown) == (2, 7, 5)
    assert found.train == 300
    assert found.ett == pytest.approx(100 * 300 / found.wall)
    assert found.paced == pytest.approx(100 * 600 / (found.wall + 300))


def test_a_row_has_medians_and_their_spread() -> None:
    runs = [made("a", *lives((seconds, 2))).result for seconds in (20, 30, 22)]
    found = spreads(runs, 10**9)["compile_first"]
    assert found.median == 22
    assert str(found) == "22.0 (20.0–30.0)"
    assert str(Spread((1.04, 0.96))) == "1.0"


def test_at_one_pace_nothing_else_changes() -> None:
    fast, slow = (
        made("a", *(one | {"data_wait": wait_s} for one in lives((20, 2), train_s=train_s))).result
        for train_s, wait_s in ((100, 10), (130, 13))
    )
    assert trained_ns([fast, slow]) == 345 * 10**9
    assert slow["ett_pct"] > fast["ett_pct"]
    paced = at_pace(slow, fast["effective_ns"])
    assert (paced["wall_ns"], paced["ett_pct"]) == (fast["wall_ns"], pytest.approx(fast["ett_pct"]))
    assert compare([fast], [paced]).change_ppm == 0


def test_rows_alike_are_comparable() -> None:
    rows = {
        "a": [made("a", *lives((20, 20), detection_s=1.0))],
        "b": [made("b", *lives((20, 2), detection_s=1.2))],
    }
    failures, workload, detection = checks(rows)
    assert failures.holds
    assert workload.holds
    assert detection.holds
    assert failures.seen["a"] == "infrastructure at 300, infrastructure at 600"
    assert workload.seen["b"] == "1,000 samples"


def test_each_repetition_has_failures_of_its_own() -> None:
    def runs(row: str, kills: tuple[int, int]) -> list:
        later = made(row, *lives((20, 20)), repetition=2, kills=kills)
        return [made(row, *lives((20, 20))), later]

    same, other = runs("b", (310, 620)), runs("b", (310, 630))
    assert checks({"a": runs("a", (310, 620)), "b": same})[0].holds
    assert not checks({"a": runs("a", (310, 620)), "b": other})[0].holds


def test_other_work_and_slower_detection_are_not_equal() -> None:
    less = made("b", *lives((20, 20)))
    less.result["attempts"][-1]["cursor_to"] = 900
    slow = made("c", *lives((20, 20), detection_s=9))
    first = made("a", *lives((20, 20)))
    _, workload, detection = checks({"a": [first], "b": [less]})
    assert (workload.holds, detection.holds) == (False, True)
    _, workload, detection = checks({"a": [first], "c": [slow]})
    assert (workload.holds, detection.holds) == (True, False)
