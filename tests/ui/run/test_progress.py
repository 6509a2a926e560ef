"""When a live training is said to stand still."""

from typing import Any

import pytest

from airflow_ett.ui.run.progress import (
    BUSY_NS,
    SILENT_NS,
    STEPPING_NS,
    Standstill,
    silence_ns,
    standstill,
)

SECOND = 10**9
SINCE = 10_000 * SECOND


def _job(phase: str | None = "train", *, still_ns: int, **changes: Any) -> dict[str, Any]:
    return {
        "frozen": False,
        "current_phase": phase,
        "progress_ns": SINCE,
        "end_ns": SINCE + still_ns,
        "attempts": [{"cursor_to": 100}, {"cursor_to": 101}],
    } | changes


def _stands(job: dict[str, Any]) -> Standstill | None:
    return standstill(job, job["end_ns"] + SECOND)


@pytest.mark.parametrize(
    ("phase", "patience_ns"),
    [
        ("train", STEPPING_NS),
        ("data_wait", STEPPING_NS),
        ("loop_other", STEPPING_NS),
        ("unattributed", STEPPING_NS),
        ("evaluation", BUSY_NS),
        ("checkpoint_save", BUSY_NS),
        ("compile", BUSY_NS),
        ("wasted.tokenise", BUSY_NS),
        ("stalled", 0),
    ],
)
def test_each_phase_has_its_patience(phase: str, patience_ns: int) -> None:
    assert _stands(_job(phase, still_ns=patience_ns - 1)) is None
    due = _stands(_job(phase, still_ns=patience_ns))
    assert due == Standstill(SINCE, patience_ns + SECOND, phase, replaying=False)


@pytest.mark.parametrize(
    "phase", ["queue", "retry_wait", "failure_detection", "replay", "first_batch", "shutdown", None]
)
def test_what_need_not_advance_never_stands(phase: str | None) -> None:
    assert _stands(_job(phase, still_ns=100 * BUSY_NS)) is None


@pytest.mark.parametrize("change", [{"frozen": True}, {"progress_ns": None}])
def test_an_ended_job_and_one_that_never_trained_do_not_stand(change: dict[str, Any]) -> None:
    assert _stands(_job(still_ns=BUSY_NS, **change)) is None


@pytest.mark.parametrize("reached", [None, 50, 100])
def test_repeating_lost_work_is_no_standstill_unless_the_watchdog_says_so(
    reached: int | None,
) -> None:
    behind = [{"cursor_to": 100}, {"cursor_to": None}, {"cursor_to": reached}]
    assert _stands(_job("train", still_ns=BUSY_NS, attempts=behind)) is None
    due = _stands(_job("stalled", still_ns=BUSY_NS, attempts=behind))
    assert due is not None
    assert due.replaying


def test_an_ingest_that_lags_is_no_standstill_but_silence() -> None:
    job = _job(still_ns=SECOND)
    later = job["end_ns"] + SILENT_NS
    assert standstill(job, later) is None
    assert silence_ns(job, later - 1) is None
    assert silence_ns(job, later) == SILENT_NS
    assert silence_ns(job | {"frozen": True}, later) is None


def test_a_real_job_that_waits_for_data(lively: Any) -> None:
    due = standstill(lively.result, lively.result["end_ns"])
    assert due is not None
    assert (due.phase, due.for_ns // SECOND) == ("data_wait", 396)
    assert standstill(lively.result | {"current_phase": "evaluation"}, due.since_ns) is None
