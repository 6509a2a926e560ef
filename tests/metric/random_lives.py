"""Random lives of jobs, as bad days left them; fixture ``lives`` hands this module out.

Tests never import each other, so the plausible lives beside it are run instead.
"""

from __future__ import annotations

import random
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_ett.errors import EventLogError
from airflow_ett.events import AttemptId, Event, Kind, decode, encode

Life = runpy.run_path(str(Path(__file__).with_name("plausible_lives.py")))["Life"]

TIMES = ("from", "to", "begin", "end", "allocated_ns", "started_ns", "ended_ns", "duration_ns")
CURSORS = ("cursor_from", "cursor_to", "cursor", "hwm", "cursor_hwm")
FIELDS: dict[str, list[Any]] = {
    **{name: [*range(60)] for name in TIMES},
    **{name: [*range(30)] for name in ("step_ns", "wait_ns", "other_ns", "blocking_ns")},
    **{name: [*range(9)] for name in CURSORS},
    **{name: [1, 2, 3] for name in ("submission", "try", "steps")},
    "restart": [-1, 0, 1],
    "fragment": [True, False],
    "exit_code": [0, 1],
    "span": ["a", "b", "c"],
    "lane": ["main", "main", "side"],
    "phase": ["compile", "first_batch", "shutdown", "evaluation", "train", "mine", "queue"],
    "cause": [None, "preempted", "application", "user_restart", "user_cancelled"],
    "state": ["RUNNING", "succeeded", "failed", "cancelled"],
    "outcome": ["success", "error", "missed"],
    "lever": ["compile_cache", "autotune"],
    "checkpoint": ["c1", "c2"],
    "scheduler": ["local_detached", "slurm"],
    "inherit": [{"hwm": 3}, None],
}
JUNK: list[Any] = [None, True, -1, 2**63 - 1, 2**63, 2**80, 1.5, 3.0, "x", "7", [], {}]
KINDS = [kind.value for kind in Kind if kind != Kind.JOB_ENDED]
KINDS += ["interval", "phase_begin", "phase_end"] * 4 + ["submitted", "of_the_future"]


def chaos(seed: int) -> list[Event]:
    """Any kinds in any order, under numbers that collide, from clocks that agree on nothing."""
    choose = random.Random(seed)

    def event(writer: str, seq: int, kind: str) -> Event:
        data = {
            name: choose.choice(JUNK if choose.random() < 0.04 else values)
            for name, values in FIELDS.items()
        }
        if choose.random() < 0.7:
            data |= _consistent(choose)
        attempt = AttemptId(choose.randint(1, 3), choose.randint(0, 1), choose.randint(0, 1))
        name = None if choose.random() < 0.1 else attempt
        rank = choose.choice([None, 0, 0, 1, 2])
        time = 2**63 - 1 if choose.random() < 0.003 else choose.randint(0, 60)
        return Event("j", writer, seq, time, kind, name, rank, data)

    events = [
        event(choose.choice(["w1", "w2"]), choose.randint(0, 30), choose.choice(KINDS))
        for _ in range(choose.randint(0, 30))
    ]
    return events + [event("end", 0, "job_ended")] * choose.randint(0, 1)


def _consistent(choose: random.Random) -> dict[str, int]:
    """Parts of an interval that sum to its length."""
    wait, step, other = (choose.choice([0, choose.randint(0, 9)]) for _ in range(3))
    begin, cursor = choose.randint(0, 50), choose.randint(0, 8)
    if choose.random() < 0.01:
        step = 2**63 - 1 - begin - wait - other
    return {
        **{"from": begin, "to": begin + wait + step + other},
        **{"wait_ns": wait, "step_ns": step, "other_ns": other, "steps": choose.randint(0, 3)},
        **{"cursor_from": cursor, "cursor_to": cursor + choose.randint(0, 3)},
    }


def spoiled(events: list[Event], seed: int) -> list[Event]:
    """The life as a bad day left it: see the functions below."""
    choose = random.Random(seed)
    for spoil in (_lose, _shift_a_clock, _step_a_clock_back, _tear, _go_ahead, _scramble):
        if choose.random() < 0.35:
            events = spoil(events, choose)
    return events


def _lose(events: list[Event], choose: random.Random) -> list[Event]:
    lost = set(choose.sample(range(len(events)), min(len(events) - 1, choose.randint(1, 5))))
    return [event for at, event in enumerate(events) if at not in lost]


def _shift_a_clock(events: list[Event], choose: random.Random) -> list[Event]:
    wrong, by = choose.choice(events).writer, choose.randint(-40, 40)
    return [_moved(event, by) if event.writer == wrong else event for event in events]


def _step_a_clock_back(events: list[Event], choose: random.Random) -> list[Event]:
    since, by = choose.choice(events), choose.randint(-30, -1)
    behind = (since.writer, since.seq)
    return [
        _moved(e, by) if (e.writer, e.seq) >= behind == (e.writer, behind[1]) else e for e in events
    ]


def _tear(events: list[Event], choose: random.Random) -> list[Event]:
    """Cut lines short; what comes next is glued to the rest, or stands on a line of its own."""
    text = b""
    for line in map(encode, events):
        torn = line[: choose.randrange(len(line))] if choose.random() < 0.08 else line
        text += torn + (b"\n" if choose.random() < 0.5 else b"")
    return [event for line in text.splitlines() if (event := _read(line)) is not None]


def _read(line: bytes) -> Event | None:
    try:
        return decode(line)
    except EventLogError:
        return None


def _go_ahead(events: list[Event], choose: random.Random) -> list[Event]:
    """Let some be written by a later version, with fields that nobody knows."""
    return [
        replace(event, extra={"v": 7, "mood": "fine"}) if choose.random() < 0.3 else event
        for event in events
    ]


def _scramble(events: list[Event], choose: random.Random) -> list[Event]:
    """Put junk in place of a field."""
    if not events:
        return events  # torn to nothing
    at = choose.randrange(len(events))
    data = dict(events[at].data)
    if data:
        data[choose.choice([*data])] = choose.choice(JUNK)
    return [*events[:at], replace(events[at], data=data), *events[at + 1 :]]


def _moved(event: Event, by: int) -> Event:
    data = {
        name: max(0, value + by) if name in ("from", "to", "allocated_ns", "begin") else value
        for name, value in event.data.items()
    }
    return replace(event, time_ns=max(0, event.time_ns + by), data=data)


def any_life(seed: int) -> list[Event]:
    """One of all kinds."""
    kind, number = seed % 4, seed // 4
    if kind == 0:
        return chaos(number)
    events: list[Event] = Life(number).tell()
    return events if kind == 1 else spoiled(events, number)
