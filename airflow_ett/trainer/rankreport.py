"""What the ranks tell that write no log of their own: through their agent, into the node's log.

Ten thousand ranks would make ten thousand files. So every rank but the node's first writes its
events to a private file of its agent, on the node itself, and the agent passes on what the job's
numbers need of them: how the node's last rank came to its first step (until then the job waits for
it), the longest blocking of each save, failures at once, and with a rank's end what it spent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from airflow_ett.events import Event, Kind, LogWriter, read_log
from airflow_ett.trainer.phases import MAIN

VARIABLE = "ETT_RANK_LOG"
"""Where a rank writes its events that has no log in the run directory."""

_SESSION = frozenset({Kind.PROCESS_STARTED, Kind.SESSION_STARTED, Kind.SESSION_ENDED})
_PARTS = ("steps", "step_ns", "wait_ns")


def file_of(folder: Path, rank: int) -> Path:
    """Return the file in which a rank tells its agent."""
    return folder / f"{rank}.jsonl"


class RankReports:
    """Reads the other ranks' files, by rank, and passes on to the agent's ``log``.

    Raises ``OSError`` where that cannot be written.
    """

    def __init__(self, log: LogWriter, files: Mapping[int, Path]) -> None:
        self._log = log
        self._ranks = {number: _Rank(number, path) for number, path in files.items()}
        self._saves: dict[str, list[Event]] = {}
        self._last: _Rank | None = None

    def look(self) -> None:
        """Read on, and pass on what is complete."""
        for rank in self._ranks.values():
            for event in rank.read():
                if event.kind == Kind.FAILURE:
                    self._pass_on(event)
                elif event.kind == Kind.CHECKPOINT_SAVED:
                    self._add_save(event)
        self._tell_last()

    def ended(self, number: int) -> dict[str, Any] | None:
        """A rank's process has ended: return what it spent, None if it told nothing."""
        self.look()
        rank = self._ranks.get(number)
        if rank is None:
            return None
        rank.over = True
        self._tell_last()
        if all(other.over for other in self._ranks.values()):
            for uri in list(self._saves):
                self._tell_save(uri)
        return rank.totals()

    def _tell_last(self) -> None:
        """Tell how the last rank begins, as soon as it is clear which one that is."""
        waiting = [r for r in self._ranks.values() if r.first_step is None and not r.over]
        if self._last is None and len(waiting) < 2:
            self._last = max(waiting or self._ranks.values(), key=_Rank.lateness, default=None)
        if self._last is not None:
            story, self._last.story = self._last.story, []
            for event in story:
                self._pass_on(event)

    def _add_save(self, event: Event) -> None:
        """Keep a rank's share in a save until all have told theirs."""
        uri = str(event.data.get("checkpoint"))
        told = self._saves.setdefault(uri, [])
        told.append(event)
        if len(told) == len(self._ranks):
            self._tell_save(uri)

    def _tell_save(self, uri: str) -> None:
        told = self._saves.pop(uri)
        self._pass_on(max(told, key=_blocking_ns))

    def _pass_on(self, event: Event) -> None:
        data = dict(event.data)
        if "span" in data:  # unique per writer, and the agent is one for all its ranks
            data["span"] = f"r{event.rank}.{data['span']}"
        self._log.append(event.kind, data, time_ns=event.time_ns, rank=event.rank)


def _blocking_ns(save: Event) -> int:
    told = save.data.get("blocking_ns")
    return told if isinstance(told, int) else 0


class _Rank:
    """One rank, as far as its file was read.

    ``story`` is what leads to its first step and was not passed on yet, of the main lane alone;
    ``first_step`` when that began (UTC nanoseconds), None before it.
    """

    def __init__(self, number: int, path: Path) -> None:
        self.number = number
        self.over = False
        self.story: list[Event] = []
        self.first_step: int | None = None
        self._path = path
        self._offset = 0
        self._open: dict[Any, Event] = {}
        self._phases: Counter[str] = Counter()
        self._parts: Counter[str] = Counter()

    def lateness(self) -> float:
        """Sort ranks by when they began; one that told nothing has no Session to wait for."""
        if self.first_step is None:
            return math.inf if self.story or not self.over else -math.inf
        return self.first_step

    def totals(self) -> dict[str, Any] | None:
        """Return what it spent, None if it told nothing."""
        if self._offset == 0:
            return None
        parts = {name: self._parts[name] for name in _PARTS}
        return {"phases": dict(self._phases), **parts, "first_step": self.first_step}

    def read(self) -> list[Event]:
        """Return what is new in its file."""
        try:
            chunk = read_log(self._path, self._offset)
        except OSError:  # it has no Session, or not yet
            return []
        self._offset = chunk.offset
        for event in chunk.events:
            begun = self.first_step is not None
            with suppress(KeyError, TypeError, ValueError):  # the training can write there, too
                if self._take(event) and not begun:
                    self.story.append(event)
        return list(chunk.events)

    def _take(self, event: Event) -> bool:
        """Count an event; True if it belongs to the course of the main lane."""
        data = event.data
        if event.kind == Kind.PHASE_BEGIN and data["lane"] == MAIN:
            self._open[data["span"]] = event
        elif event.kind == Kind.PHASE_END and data["span"] in self._open:
            begin = self._open.pop(data["span"])
            self._phases[str(begin.data["phase"])] += event.time_ns - begin.time_ns
        elif event.kind == Kind.INTERVAL:
            self._parts.update({name: int(data[name]) for name in _PARTS})
            if self.first_step is None:
                self.first_step = int(data["from"])
        else:
            return event.kind in _SESSION
        return True
