"""Runs of an ablation, made from the lengths of their phases."""

from __future__ import annotations

from typing import Any

from ablation.kept import Run

from tests.metric.plans.made_jobs import job

KILLS = (300, 600)
SAMPLES = 1000


def made(
    row: str,
    *attempts: dict[str, Any],
    repetition: int = 1,
    every_s: float = 10.0,
    kills: tuple[int, int] = KILLS,
    saves: int = 0,
    workload: str = "w",
) -> Run:
    """A run of a row. Attempts are told as those of a made job; the first two are killed."""
    result = job(*attempts, run=f"{row} {repetition}", accelerators=0)
    result |= {"nos": saves, "csbt_ns": 0}
    for attempt, cursor in zip(result["attempts"], (*kills, SAMPLES), strict=True):
        killed = cursor != SAMPLES
        attempt |= {"cursor_to": cursor, "cause": "infrastructure" if killed else None}
    return Run(workload, row, repetition, every_s, result)


def lives(
    compile_s: tuple[float, float],
    *,
    first_batch_s: float = 0.0,
    retry_s: float = 0.0,
    publish_s: float = 0.0,
    detection_s: float = 1.0,
    train_s: float = 100.0,
) -> list[dict[str, Any]]:
    """Three attempts, which compile cold or warm and miss or hit."""
    found = []
    for number, seconds in enumerate((compile_s[0], compile_s[1], compile_s[1])):
        hit = number > 0 and compile_s[1] < compile_s[0]
        attempt: dict[str, Any] = {"compile": seconds, "first_batch": first_batch_s}
        attempt["train"] = train_s
        attempt["compiles"] = [{"s": seconds, "hits": int(hit), "misses": int(not hit)}]
        if number < 2:
            attempt |= {"failure_detection": detection_s, "retry_wait": retry_s}
        found.append(attempt)
    return [*found[:2], found[2] | {"publish": publish_s}]
