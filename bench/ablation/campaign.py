"""The runs that an ablation needs: which are kept from before, which are still to be made."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from ablation.drive import Training
from ablation.kept import Kept, Run
from ablation.predict import tuned_interval
from ablation.rows import Row
from ablation.workload import FACTORY, MODULE, SIZES_VARIABLE, Workload


@dataclass(frozen=True, slots=True)
class Due:
    """A run to be made."""

    workload: Workload
    row: Row
    repetition: int


class Campaign:
    """``rows`` with one workload, each ``repetitions`` times; runs that are kept are not repeated.

    The repetitions go through all rows in turn, forth and back, so that a machine that becomes
    slower, or faster, meets all of them alike.
    """

    def __init__(
        self,
        workload: Workload,
        rows: Sequence[Row],
        repetitions: int,
        kept: Kept,
        *,
        gpus: int = 0,
    ) -> None:
        self.workload = workload
        self.rows = rows
        self._repetitions = repetitions
        self._kept = kept
        self._gpus = gpus

    def runs(self) -> dict[str, list[Run]]:
        """Return the runs that are kept by row, of rows that have any, in the rows' order."""
        found = {row.name: self._runs(row) for row in self.rows}
        return {name: runs for name, runs in found.items() if runs}

    def due(self, rows: Sequence[Row]) -> Iterator[Due]:
        """Yield what is to be made of these rows, in order: every other time from the last one."""
        for repetition in range(1, self._repetitions + 1):
            for row in rows if repetition % 2 else reversed(rows):
                if all(run.repetition != repetition for run in self._runs(row)):
                    yield Due(self.workload, row, repetition)

    def expected_s(self, due: Due) -> float:
        """Return how long a run takes: as its row's runs did, or roughly."""
        if walls := [run.result["wall_ns"] / 1e9 for run in self._runs(due.row)]:
            return float(median(walls))
        slow, fast = self.workload.expected_s
        most = max(len(row.levers) for row in self.rows)
        return slow + (fast - slow) * len(due.row.levers) / most

    def make(self, due: Due) -> Run:
        """Make a run and keep it."""
        every_s = self.every_s(due.row)
        with tempfile.TemporaryDirectory(prefix="ett-bench-", ignore_cleanup_errors=True) as folder:
            run = self._make(due, every_s, Path(folder))
        self._kept.add(run)
        return run

    def every_s(self, row: Row) -> float:
        """Return the interval at which a row saves: one that the metric finds, if it is tuned.

        All tuned rows have the same one. It follows from the last row before them.
        """
        if "tuned_interval" not in row.levers:
            return self.workload.every_s
        tuned = [other for other in self.rows if "tuned_interval" in other.levers]
        for other in tuned:
            for run in self._runs(other):
                return run.every_s
        before = [o for o in self.rows if "tuned_interval" not in o.levers and self._runs(o)]
        if not before:
            raise SystemExit(f"{row.name}: its interval follows from a row before it; run that too")
        results = [run.result for run in self._runs(before[-1])]
        return tuned_interval(
            results, to_background="background_saves" in row.levers - before[-1].levers
        )

    def _runs(self, row: Row) -> list[Run]:
        return self._kept.of(self.workload.digest(), row.name)

    def _make(self, due: Due, every_s: float, folder: Path) -> Run:
        workload, row = due.workload, due.row
        training = Training(
            folder,
            MODULE,
            [
                *workload.arguments(row, due.repetition, every_s),
                f"--registry={folder / 'in-trainer'}",
            ],
            retry_delay_s=None if "immediate_retry" in row.levers else workload.retry_delay_s,
            gpus=self._gpus,
        )
        if "earlier_job" in row.levers:
            arguments = workload.earlier(row, every_s)
            replace(training, arguments=arguments, run_id="earlier").run()
        result, checkpoint = training.run()
        check(result, workload, due.repetition)
        standalone_s = None
        if "standalone_publish" in row.levers and checkpoint:
            standalone_s = _publish(workload, checkpoint, folder / "registry")
        return Run(
            workload=workload.digest(),
            row=row.name,
            repetition=due.repetition,
            every_s=every_s,
            result=result,
            standalone_s=standalone_s,
        )


def make_all(campaigns: Iterable[tuple[Campaign, Sequence[Row]]]) -> None:
    """Make all runs that are due of the given rows; tell of each on standard error."""
    due = [(campaign, one) for campaign, rows in campaigns for one in campaign.due(rows)]
    for number, (campaign, one) in enumerate(due, 1):
        left_s = sum(other.expected_s(later) for other, later in due[number - 1 :])
        _say(
            f"run {number} of {len(due)}: {one.row.name}, repetition {one.repetition}; "
            f"about {left_s / 60:.0f} min left"
        )
        began = time.monotonic()
        run = campaign.make(one)
        took_s = time.monotonic() - began
        _say(f"  ETT% {run.result['ett_pct']:.1f}, saved every {run.every_s:g} s, {took_s:.0f} s")


def check(result: Mapping[str, Any], workload: Workload, repetition: int) -> None:
    """Raise ``RuntimeError`` unless a run failed as it was told to, and trained what it should."""
    ended = [attempt for attempt in result["attempts"] if attempt["cause"] is not None]
    killed = [attempt["evidence"].get("signal") == signal.SIGKILL for attempt in ended]
    kills = workload.kills(repetition)
    if len(ended) != len(kills) or not all(killed):
        told = "; ".join(str(attempt["evidence"].get("text")) for attempt in ended)
        raise RuntimeError(f"it was to be killed {len(kills)} times, and failed so: {told}")
    reached = result["attempts"][-1]["cursor_to"]
    if reached != workload.samples // workload.batch_size * workload.batch_size:
        raise RuntimeError(f"it trained up to {reached:,} instead of {workload.samples:,}")


def _publish(workload: Workload, checkpoint: str, registry: Path) -> float:
    """Publish as ModelPublishOperator does, in a process that holds no accelerators."""
    began = time.monotonic()
    subprocess.run(
        [
            *(sys.executable, "-m", "airflow_ett.publish", "--checkpoint", checkpoint),
            *("--model", FACTORY, "--registry", str(registry), "--name", "dlrm"),
        ],
        env={**os.environ, SIZES_VARIABLE: json.dumps(workload.sizes), "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.monotonic() - began


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
