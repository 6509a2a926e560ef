"""Jobs as ``JobMetric.as_dict()`` has them, made from the lengths of their phases."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from airflow_ett.metric.plans.advice import NEEDED

SECOND = 1_000_000_000
HOUR = 3600

AFTER = ("failure_detection", "retry_wait")
STEADY = ("checkpoint_save", "data_wait", "evaluation", "stalled", "loop_other")
CLOSING = ("shutdown", "publish", "publish.export")
Result = dict[str, Any]


def job(
    *attempts: dict[str, Any],
    run: str = "r1",
    accelerators: int = 8,
    task: str = "train",
    begin_s: int = 0,
    **more: Any,
) -> Result:
    """A job as ``as_dict`` has it. An attempt: seconds by phase, ``cause``, ``compiles`` and
    ``levers``.

    All but the last attempt failed; what lies before the first training is the start's, what
    another attempt needed until it trained again a recovery's.
    """
    spans = [{p: round(v * SECOND) for p, v in a.items() if _is_phase(p)} for a in attempts]
    positions, recoveries = _positions(spans)
    whole = sum((Counter(phases) for phases in spans), Counter[str]())
    causes = [a.get("cause", "preempted") for a in attempts[:-1]]
    result: Result = {
        "dag_id": "ranker",
        "run_id": run,
        "task_id": task,
        "job": f"{task} {run} {begin_s}",
        "begin_ns": begin_s * SECOND,
        "accelerators": accelerators,
        "wall_ns": whole.total(),
        "effective_ns": whole["train"],
        "ett_pct": 100 * whole["train"] / whole.total() if whole.total() else None,
        "tts_ns": positions["start"].total(),
        "ttr": [
            {"ns": r.total(), "recovered": True, "cause": c, "utt_ns": r["replay"]}
            for r, c in zip(recoveries, causes, strict=True)
        ],
        "nof": len(causes),
        "phases_ns": dict(whole),
        "levels_ns": {name: part.total() for name, part in positions.items()},
        "positions_ns": {name: dict(part) for name, part in positions.items()},
        "attempts": [
            {
                "submission": n,
                "scheduler_restart": 0,
                "elastic_restart": 0,
                "phases_ns": phases,
                "levers": [
                    {"duration_ns": None, "reason": None, "rank": 0} | row
                    for row in attempt.get("levers", ())
                ],
            }
            for n, (phases, attempt) in enumerate(zip(spans, attempts, strict=True), 1)
        ],
        "compiles": [
            {"attempt": [n, 0, 0], "begin_ns": 0, "lane": "main", "reason": None}
            | {"id": "0/0", "hits": 0, "misses": 0}
            | row
            | {"duration_ns": round(row["s"] * SECOND)}
            for n, attempt in enumerate(attempts, 1)
            for row in attempt.get("compiles", ())
        ],
        "checkpoints": [],
        "nos": 0,
        "utt_ns": whole["replay"],
        "wtt_ns": whole["replay"] + whole["checkpoint_save"],
    }
    result |= more
    assert set(result) == NEEDED
    return result


def _positions(
    spans: list[dict[str, int]],
) -> tuple[dict[str, Counter[str]], list[Counter[str]]]:
    """Return the phases by position, and those of each recovery."""
    positions: dict[str, Counter[str]] = {
        name: Counter() for name in ("effective", "start", "recovery", "steady", "shutdown")
    }
    recoveries = [Counter[str]() for _ in spans[1:]]
    for number, phases in enumerate(spans):
        for phase, ns in phases.items():
            if phase == "train":
                positions["effective"][phase] += ns
            elif phase in STEADY:
                positions["steady"][phase] += ns
            elif phase in CLOSING:
                positions["shutdown"][phase] += ns
            elif phase in AFTER and number < len(recoveries):
                recoveries[number][phase] += ns
            elif number:
                recoveries[number - 1][phase] += ns
            else:
                positions["start"][phase] += ns
    positions["recovery"] = sum(recoveries, Counter())
    return positions, recoveries


def _is_phase(name: str) -> bool:
    return name not in ("cause", "compiles", "levers")


def realistic(count: int) -> list[Result]:
    """Jobs of hours on 32 accelerators, every tenth with 30 attempts."""
    chance = random.Random(7)
    found = []
    for number in range(count):
        attempts = []
        for _ in range(30 if number % 10 == 0 else chance.randint(1, 4)):
            cold = chance.random() < 0.2
            compiled = chance.uniform(1500, 2500) if cold else chance.uniform(30, 60)
            row = {"s": compiled, "misses" if cold else "hits": 4}
            attempts.append(
                {
                    "queue": chance.uniform(5, 900),
                    "hardware_setup": chance.uniform(20, 90),
                    "launcher_init": chance.uniform(5, 20),
                    "process_group_init": chance.uniform(20, 90),
                    "preproc_creation": chance.uniform(60, 200),
                    "train_module_creation": chance.uniform(60, 400),
                    "checkpoint_restore": chance.uniform(60, 300),
                    "first_batch": chance.uniform(60, 300),
                    "compile": compiled,
                    "train": chance.uniform(1, 8) * HOUR,
                    "replay": chance.uniform(0, 1800),
                    "data_wait": chance.uniform(0, 600),
                    "checkpoint_save": chance.uniform(60, 300),
                    "stalled": chance.choice([0, 0, 0, 1500]),
                    "failure_detection": chance.uniform(1, 120),
                    "retry_wait": chance.uniform(1, 200),
                    "unattributed": chance.uniform(0, 60),
                    "cause": chance.choice(["preempted", "application", "out_of_memory"]),
                    "compiles": [
                        row | {"id": f"{graph}/0", "s": compiled / 4} for graph in range(4)
                    ],
                }
            )
        attempts[-1]["publish"] = chance.uniform(600, 2400)
        found.append(
            job(
                *attempts, run=f"r{number}", accelerators=32, begin_s=number, nos=16 * len(attempts)
            )
        )
    return found
