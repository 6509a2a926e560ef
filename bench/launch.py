"""What launching costs: standstills, first processes, a crowd of deferred trainings, memory.

All of it on this host, with ``local_detached`` (the crowd: a scripted scheduler) and the default
poll interval of one second. Beside it TorchX by hand: the same component and script on its own
``local_cwd``, which keeps nothing on disk and ends with its launcher. Trainers that are killed have
run quietly for half a minute, as trainings do. Takes about four minutes.
"""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Mapping
from statistics import median

from crowd import ANSWER_S, Crowd, crowd
from memory import Memory, memory
from report import Target, publish_table
from restarts import Restart, restarts_and_first_processes

COLUMNS = ("median", "worst", "ratio")

PARTS: Mapping[str, str] = {
    "noticed": "  until the watcher looks",
    "judged": "  until it is judged",
    "submitted": "  until the next submit begins",
    "supervised": "  until its supervisor runs",
    "agent": "  until its agent runs",
    "trainer": "  until its trainer runs",
}

Row = tuple[float | None, float | None, float | None]


def standstill_rows(restarts: list[Restart]) -> dict[str, Row]:
    """The whole, and its parts with their share of it."""
    whole = median(restart.whole for restart in restarts)
    worst = max(restart.whole for restart in restarts)
    rows: dict[str, Row] = {"trainer's death to the next one, s": (whole, worst, 1)}
    for part, label in PARTS.items():
        seconds = [getattr(restart, part) for restart in restarts]
        rows[label] = (median(seconds), max(seconds), median(seconds) / whole)
    return rows


def first_process_rows(first: Mapping[str, float]) -> dict[str, Row]:
    """Ours beside TorchX, both from a process that runs and as a command of their own.

    Ours claims, writes the intent and starts a supervisor; the command also starts Python.
    """
    pairs = [
        ("ours, in a process that runs", "torchx in a process that runs"),
        ("ours, as a command", "torchx run, as a command"),
    ]
    rows: dict[str, Row] = {}
    for ours, theirs in pairs:
        rows[f"submit to first line: {ours}, s"] = (first[ours], None, first[ours] / first[theirs])
        rows[f"  {theirs}, s"] = (first[theirs], None, 1)
    return rows


def crowd_rows(seen: Crowd) -> dict[str, Row]:
    """Latencies with their ratio to the scheduler's answer; the lag beside an idle loop's."""
    return {
        "200 deferred: lag of the loop (p99, worst), ms": (
            seen.lag_p99 * 1000,
            seen.lag_max * 1000,
            seen.lag_max / seen.idle_lag_max,
        ),
        "  of an idle loop meanwhile, ms": (None, seen.idle_lag_max * 1000, 1),
        "  an end is noticed after, s": (
            seen.noticed_median,
            seen.noticed_max,
            seen.noticed_median / ANSWER_S,
        ),
        "  a user's kill reaches the scheduler after, s": (
            seen.told_median,
            seen.told_max,
            seen.told_median / ANSWER_S,
        ),
    }


def memory_rows(held: Memory) -> dict[str, Row]:
    """What one training holds, with its ratio to a held one."""
    whole = held.task + held.supervisor
    return {
        "memory of a held training, MB": (whole, None, 1),
        "  its task process": (held.task, None, held.task / whole),
        "  that one's supervisor": (held.supervisor, None, held.supervisor / whole),
        "of one more deferred training, MB": (held.trigger, None, held.trigger / whole),
        "  the triggerer with one": (held.triggerer, None, held.triggerer / whole),
    }


def main() -> None:
    """Measure all in turn, and publish."""
    logging.disable(logging.CRITICAL)
    with contextlib.redirect_stdout(io.StringIO()):
        restarts, first = restarts_and_first_processes()
        seen = crowd()
        held = memory()
    firsts = first_process_rows(first)
    rows = standstill_rows(restarts) | firsts | crowd_rows(seen) | memory_rows(held)
    whole = [restart.whole for restart in restarts]
    in_process, as_command = (row[2] or 0 for row in list(firsts.values())[::2])
    targets = [
        Target("trainer's death to the next one, median", median(whole), "s", 1.5),
        Target("the same, worst", max(whole), "s", 2.5),
        Target("submit to first line over TorchX, in a process", in_process, "times", 1.25),
        Target("the same, as a command", as_command, "times", 1.25),
        Target("lag of a loop with 200 deferred, worst", seen.lag_max * 1000, "ms", 200),
        Target("a user's kill reaches a slow scheduler, worst", seen.told_max, "s", 30),
        Target("memory of one more deferred training", held.trigger, "MB", 1),
    ]
    publish_table("launch", COLUMNS, rows, targets)


if __name__ == "__main__":
    main()
