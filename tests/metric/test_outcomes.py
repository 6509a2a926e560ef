"""What became of the levers, in words, and in the report."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ett.metric.outcomes import summed_up, told, why_cold
from airflow_ett.metric.report import render

S = 1_000_000_000


def row(lever: str, outcome: str, **more: Any) -> dict[str, Any]:
    known = {"reason": None, "duration_ns": None, "bytes": None, "rank": 0}
    return known | {"lever": lever, "outcome": outcome} | more


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({}, "used"),
        ({"duration_ns": S // 5}, "used in 200 ms"),
        ({"reason": "by attempt 1", "rank": 8}, "used on rank 8 (by attempt 1)"),
    ],
)
def test_an_outcome_in_words(more: dict[str, Any], text: str) -> None:
    assert plain(told(row("compile_cache", "used", **more))) == text


def test_an_attempts_levers_in_a_line_with_what_it_compiled_for() -> None:
    levers = [
        row("compile_cache", "missed", reason="another torch"),
        row("fast_batch", "used"),
        row("compile_cache", "saved"),
    ]
    attempt = {"levers": levers, "phases_ns": {"compile": 17 * S}}
    assert plain(summed_up(attempt)) == (
        "compile cache missed (another torch), saved, compiled for 17.0 s; fast batch used"
    )
    assert summed_up({"levers": [], "phases_ns": {"compile": S}}) == ""


def test_only_what_did_not_work_makes_a_compilation_cold() -> None:
    levers = [row("fast_batch", "unable"), row("compile_cache", "saved")]
    assert why_cold({"levers": levers}) == ""
    levers.append(row("compile_cache", "off", reason="ETT_COMPILE_CACHE=0"))
    assert why_cold({"levers": levers}) == "off (ETT_COMPILE_CACHE=0)"


def test_the_report_tells_the_levers_of_the_attempts_that_have_a_column(history: Any) -> None:
    history.open()
    for number in range(1, 9):
        at = 30 * number
        history.submit(at, number).session(at + 1, at + 2, (number, 0, 0))
        data = {"lever": "compile_cache", "outcome": "missed", "reason": f"cold\x1b {number}"}
        history.add("lever", at + 3, data, attempt=(number, 0, 0), rank=0)
        history.steps(at + 10, at + 20, (number, number + 1), (number, 0, 0))
    text = render([history.measure(now=300).as_dict()])
    told = [line for line in text.splitlines() if line.startswith("levers of ")]
    assert [line.split()[2] for line in told] == ["1", "5", "6", "7", "8"]
    assert told[0].endswith(r"compile cache missed (cold\x1b 1)")
