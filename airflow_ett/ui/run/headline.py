"""The headline numbers, and the wall clock as one sum. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_ett.events import JobState
from airflow_ett.metric.format import accelerator_hours, counted, duration, percent
from airflow_ett.ui.clock import Clock
from airflow_ett.ui.words import is_wish

_POSITIONS = (
    ("effective", "ett-effective", "effective"),
    ("start", "l1-start", "TTS"),
    ("recovery", "l1-recovery", "TTR"),
    ("steady", "l1-waste", "in-loop waste"),
    ("shutdown", "l1-shutdown", "shutdown"),
)
_WINDOWS = {"1h": "Last hour", "24h": "Last day"}


@dataclass(frozen=True, slots=True)
class Stat:
    """One cell: label, value, and lines below."""

    label: str
    value: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the sum: its colour's token, words, length and width in percent."""

    token: str
    words: str
    ns: int
    width: float


@dataclass(frozen=True, slots=True)
class Sum:
    """``parts`` add up to ``wall_ns`` exactly; ``excluded_ns`` was left out of it."""

    wall_ns: int
    parts: tuple[Part, ...]
    excluded_ns: int


def headline(result: Mapping[str, Any], clock: Clock) -> tuple[Stat, ...]:
    """Return the five cells."""
    return (
        _ett(result),
        _unsaved(result, clock),
        _start(result),
        _recovery(result),
        _lost(result),
    )


def wall_clock(result: Mapping[str, Any]) -> Sum:
    """Return the wall clock as the sum of its positions."""
    levels, wall = result["levels_ns"], result["wall_ns"]
    count = len(result["ttr"])
    parts = (
        Part(
            token=token,
            words=f"{words} ({count})" if position == "recovery" and count else words,
            ns=levels[position],
            width=100 * levels[position] / wall if wall else 0.0,
        )
        for position, token, words in _POSITIONS
    )
    return Sum(wall, tuple(parts), result["excluded_ns"])


def _ett(result: Mapping[str, Any]) -> Stat:
    held = f"Accelerators held {percent(result['ett_pct_held'])}"
    lines = [f"{held} · wall clock {duration(result['wall_ns'])}"]
    if not result["frozen"]:
        lines += _windows(result)
    return Stat("ETT%, from submission", percent(result["ett_pct"]), tuple(lines))


def _windows(result: Mapping[str, Any]) -> Iterator[str]:
    """The last hour and the last day, those that are shorter than the whole."""
    found = [
        f"{words} {percent(window['ett_pct'])}"
        for key, words in _WINDOWS.items()
        if (window := result["windows"].get(key)) and window["begin_ns"] > result["begin_ns"]
    ]
    if found:
        yield " · ".join(found)


def _unsaved(result: Mapping[str, Any], clock: Clock) -> Stat:
    if not _measured(result):
        return Stat("At risk" if not result["frozen"] else "Unsaved", "–", ())
    if not result["frozen"]:
        return Stat("At risk", duration(result["at_risk_ns"]), (_since(result, clock),))
    ns = result["utt_ns"] + result["at_risk_ns"]
    if not ns:
        return Stat("Unsaved", duration(0), ("no training was lost",))
    lines = [f"{_amount(result, ns)}trained, then lost"]
    if result["at_risk_ns"] and result["state"] != JobState.SUCCEEDED:
        lines.append(f"{duration(result['at_risk_ns'])} of it at the job's end")
    return Stat("Unsaved", duration(ns), tuple(lines))


def _since(result: Mapping[str, Any], clock: Clock) -> str:
    committed = [c["committed_ns"] for c in result["checkpoints"] if c["committed_ns"] is not None]
    amount = _amount(result, result["at_risk_ns"])
    if not committed:
        return f"{amount}no checkpoint is committed yet"
    return f"{amount}since the checkpoint of {clock.brief(max(committed), result['end_ns'])}"


def _amount(result: Mapping[str, Any], ns: int) -> str:
    if not result["accelerators"]:
        return ""
    return f"{accelerator_hours(ns * result['accelerators'])} accelerator-hours "


def _start(result: Mapping[str, Any]) -> Stat:
    if not _measured(result):
        return Stat("Time to start", "–", ())
    parts = {phase: ns for phase, ns in result["positions_ns"]["start"].items() if ns}
    # An attempt that ended before its first step has no training in its start.
    parts.pop("train", None)
    lines: tuple[str, ...] = ()
    if parts and result["tts_ns"]:
        largest = max(parts, key=parts.__getitem__)
        lines = (f"{percent(100 * parts[largest] / result['tts_ns'])} of it is {largest}",)
    return Stat("Time to start", duration(result["tts_ns"]), lines)


def _recovery(result: Mapping[str, Any]) -> Stat:
    found = result["ttr"]
    if not found:
        nof = result["nof"]
        return Stat("Time to recover", "–", (counted(nof, "failure") if nof else "no failures",))
    longest = max(one["ns"] for one in found)
    lines = [f"{counted(result['nof'], 'failure')}, longest {duration(longest)}"]
    wished = sum(is_wish(one["cause"]) for one in found)
    if wished:
        lines.append(f"{wished} of {len(found)} after a user's wish")
    if not found[-1]["recovered"]:
        lines.append("recovering now" if not result["frozen"] else "the last never recovered")
    return Stat("Time to recover", duration(sum(one["ns"] for one in found)), tuple(lines))


def _lost(result: Mapping[str, Any]) -> Stat:
    count = result["accelerators"]
    words = "Lost accelerator-hours" if count else "Lost time"
    if not _measured(result):
        return Stat(words, "–", ())
    held, lost = result["held_ns"], result["held_ns"] - result["effective_ns"]
    if count:
        held_text, lost_text = accelerator_hours(held * count), accelerator_hours(lost * count)
    else:
        held_text, lost_text = duration(held), duration(lost)
    return Stat(words, lost_text, (f"of {held_text} held",))


def _measured(result: Mapping[str, Any]) -> bool:
    return result["ett_pct"] is not None
