"""What the pages know of a job, taken from the report that the store keeps of it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from airflow_ett.events import USER_CAUSES, Cause, JobState

COMPONENT_LABELS = {
    "effective": "Effective",
    "wasted": "Wasted",
    "pt2_compile": "PT2 compile",
    "trainer_init": "Trainer init",
    "scheduling": "Scheduling",
    "shutdown": "Shutdown",
    "unattributed": "Unattributed",
}
"""The components in stack order, bottom to top, and how people read them."""

COMPONENT_TOKENS = {
    name: {"pt2_compile": "compile", "trainer_init": "init"}.get(name, name)
    for name in COMPONENT_LABELS
}
"""Component to its colour: ``--ett-<token>`` in the style sheet."""


class Measure(NamedTuple):
    """A job on one clock: its length, the components that it is the sum of, and the ETT%."""

    whole_ns: int
    parts_ns: Mapping[str, int]
    pct: float | None


@dataclass(frozen=True, slots=True)
class Job:
    """One training. Lengths are nanoseconds, ``ett_pct`` and its kin 0 to 100.

    ``alone`` says whether it is the only one of its run among the jobs given.

    ``ett_pct``, ``ett_pct_held``, ``ett_pct_paper`` and ``tts_ns`` are None where the trainer sent
    no events. ``recoveries`` are those after a failure (a user's own restart is none), as length
    and whether training came past its high-water mark again; ``recovery_ns`` sums all of them, the
    user's too, and is None where there was none.
    """

    job: str
    run_id: str
    task_id: str
    map_index: int
    label: str
    alone: bool
    state: str
    frozen: bool
    begin_ns: int
    wall_ns: int
    held_ns: int
    effective_ns: int
    ett_pct: float | None
    ett_pct_held: float | None
    ett_pct_paper: float | None
    tts_ns: int | None
    recoveries: tuple[tuple[int, bool], ...]
    recovery_ns: int | None
    attempts: int
    nof: int
    preempted: int
    components_ns: Mapping[str, int]
    held_components_ns: Mapping[str, int]
    accelerators: int
    released_ns: int
    quality: str
    reasons: tuple[str, ...]
    cause: str | None

    def on(self, *, held: bool) -> Measure:
        """Return the job on the clock that runs from submission, or only while ``held``."""
        if held:
            return Measure(self.held_ns, self.held_components_ns, self.ett_pct_held)
        return Measure(self.wall_ns, self.components_ns, self.ett_pct)

    @property
    def measured(self) -> bool:
        """True where the trainer's events allow an ETT%."""
        return self.ett_pct is not None

    @property
    def running(self) -> bool:
        """True while the job's end is open; its numbers are provisional."""
        return self.state == JobState.RUNNING

    @property
    def recovering(self) -> bool:
        """True while a running job has not yet come past its high-water mark after a failure."""
        return self.running and bool(self.recoveries) and not self.recoveries[-1][1]

    @property
    def failed(self) -> bool:
        """True where the job ended in failure."""
        return self.state == JobState.FAILED

    @property
    def lost_ns(self) -> int | None:
        """Held time that did not train on new data; None without ETT%."""
        return self.held_ns - self.effective_ns if self.measured else None


def jobs_of(results: Iterable[Mapping[str, Any]]) -> list[Job]:
    """Return the jobs of the stored reports, oldest first, each with a label that is its own.

    A label is the run's id, followed by task, map index and generation where the run alone does
    not tell.
    """
    rows = sorted(results, key=lambda row: (row["begin_ns"], row["job"]))
    runs = Counter(row["run_id"] for row in rows)
    return [_job(row, alone=runs[row["run_id"]] == 1) for row in rows]


def weights(jobs: Sequence[Job]) -> list[int] | None:
    """Return each job's accelerators as its weight, or None where no job held any."""
    counts = [job.accelerators for job in jobs]
    return counts if any(counts) else None


def _job(row: Mapping[str, Any], *, alone: bool) -> Job:
    # A report tells of each, the store's list of jobs counts them.
    attempts = row["attempts"]
    by_cause = row["nof_by_cause"]
    return Job(
        job=row["job"],
        run_id=row["run_id"],
        task_id=row["task_id"],
        map_index=row["map_index"],
        label=row["run_id"] if alone else f"{row['run_id']} · {_task(row)}",
        alone=alone,
        state=row["state"],
        frozen=row["frozen"],
        begin_ns=row["begin_ns"],
        wall_ns=row["wall_ns"],
        held_ns=row["held_ns"],
        effective_ns=row["effective_ns"],
        ett_pct=row["ett_pct"],
        ett_pct_held=row["ett_pct_held"],
        ett_pct_paper=row["ett_pct_paper"],
        tts_ns=row["tts_ns"] if row["ett_pct"] is not None else None,
        recoveries=tuple(
            (ttr["ns"], ttr["recovered"]) for ttr in row["ttr"] if ttr["cause"] not in USER_CAUSES
        ),
        recovery_ns=sum(ttr["ns"] for ttr in row["ttr"]) if row["ttr"] else None,
        attempts=attempts if isinstance(attempts, int) else len(attempts),
        nof=row["nof"],
        preempted=by_cause.get(Cause.PREEMPTED, 0),
        components_ns=_in_order(row["components_ns"]),
        held_components_ns=_in_order(row["held_components_ns"]),
        accelerators=row["accelerators"],
        released_ns=row["released_ns"] or 0,
        quality=row["quality"],
        reasons=tuple(row["quality_reasons"]),
        cause=row["cause"],
    )


def _in_order(components_ns: Mapping[str, int]) -> dict[str, int]:
    return {name: components_ns.get(name, 0) for name in COMPONENT_LABELS}


def _task(row: Mapping[str, Any]) -> str:
    index = f"[{row['map_index']}]" if row["map_index"] >= 0 else ""
    generation = f" g{row['generation']}" if row["generation"] > 1 else ""
    return f"{row['task_id']}{index}{generation}"
