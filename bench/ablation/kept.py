"""Runs that are over, as JSON lines, so that a long ablation may be done in pieces."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_RUNS = (
    *("checkpoints", "events", "examples/dlrm", "launch", "metric", "publish"),
    *("storage", "trainer"),
)
_DRIVE = ("drive.py", "host.py", "rows.py", "workload.py")


@dataclass(frozen=True, slots=True)
class Run:
    """A run of one row. ``result`` is the job as ``report --json`` has it.

    ``every_s`` is the interval it saved at, ``standalone_s`` what its publishing took by itself,
    None where the trainer published.
    """

    workload: str
    row: str
    repetition: int
    every_s: float
    result: Mapping[str, Any]
    standalone_s: float | None = None


class Kept:
    """The runs of one state of the code, which is part of the file's name."""

    def __init__(self, folder: Path, code: str) -> None:
        self.path = folder / f"{code}.jsonl"

    def add(self, run: Run) -> None:
        """Keep a run."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(asdict(run) | {"commit": commit()}) + "\n")

    def of(self, workload: str, row: str) -> list[Run]:
        """Return a row's runs with a workload of this digest, by repetition."""
        mine = (run for run in self._all() if (run.workload, run.row) == (workload, row))
        runs = {run.repetition: run for run in mine}
        return [runs[repetition] for repetition in sorted(runs)]

    def _all(self) -> Iterator[Run]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        for line in lines:
            fields = json.loads(line)
            del fields["commit"]
            yield Run(**fields)


def code() -> str:
    """Return eight digits that change with anything that runs in the ablation."""
    paths = sorted(path for part in _RUNS for path in (ROOT / "airflow_ett" / part).rglob("*.py"))
    paths = [path for path in paths if "plans" not in path.parts]  # they read results, later
    paths += [Path(__file__).with_name(name) for name in _DRIVE]
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def commit() -> str:
    """Return the checkout's commit, for the reader; what is not committed is marked."""
    asked = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    told = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    return told.stdout.strip() or "no checkout"
