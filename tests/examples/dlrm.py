"""Trainings of the DLRM example in forked processes, and what they leave behind."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from airflow_ett.checkpoints import Checkpoint, newest_committed
from airflow_ett.config import JOB_VARIABLE
from airflow_ett.events import Event, JobContext, JobKey, Kind, RunDir, read_log
from tests.forked import run_ranks
from tests.publish.reading import model_weights

SAMPLES = 3200
SMALL = ("--tables=4", "--rows=50", "--dimension=4", "--layers=1", "--batch-size=16")
QUICK = (*SMALL, f"--samples={SAMPLES}", "--warmup-s=0", "--every-s=0.1")


def train(world: int, *arguments: str, **environ: str) -> list[Any]:
    """Train; return what each rank prints, its exit code where it ends otherwise."""

    def act() -> str:
        from airflow_ett.examples.dlrm.train import main

        with redirect_stdout(io.StringIO()) as printed:
            main([*QUICK, *arguments])
        return printed.getvalue()

    return run_ranks(world, act, **environ)


class Job:
    """A launched training without a launcher; its cache is beside it unless told otherwise."""

    def __init__(self, folder: Path, cache: Path | None = None) -> None:
        self._run_dir = RunDir(folder / "run")
        self._run_dir.path.mkdir(parents=True)
        self._cache = cache or folder / "cache"
        self._name = folder.name
        self._submission = 0

    def train(self, world: int, *arguments: str, **environ: str) -> list[Any]:
        """Run its next submission."""
        self._submission += 1
        context = JobContext(
            key=JobKey("test", "dlrm", "run", self._name),
            submission=self._submission,
            run_dir=str(self._run_dir.path),
            checkpoints=str(self._run_dir.checkpoints),
            epoch=self._submission,
            cache=str(self._cache),
        )
        return train(world, *arguments, **{JOB_VARIABLE: context.encode()}, **environ)

    def events(self, kind: Kind) -> list[Event]:
        """Return the events of a kind, in order of time."""
        logs = [read_log(path) for path in self._run_dir.logs()]
        found = [event for log in logs for event in log.events if event.kind == kind]
        return sorted(found, key=lambda event: event.time_ns)

    def levers(self, outcome: str) -> set[str]:
        """Return which levers told of an outcome in the last submission."""
        return {
            event.data["lever"]
            for event in self.events(Kind.LEVER)
            if event.attempt
            and event.attempt.submission == self._submission
            and event.data["outcome"] == outcome
        }

    def compiled_ns(self) -> list[list[int]]:
        """Return how long each submission compiled, each time."""
        told = [(e.attempt, e.data["duration_ns"]) for e in self.events(Kind.COMPILE)]
        return [
            [ns for attempt, ns in told if attempt and attempt.submission == number + 1]
            for number in range(self._submission)
        ]

    def anchor(self) -> Checkpoint:
        """Return the checkpoint that the training has left."""
        anchor = newest_committed(str(self._run_dir.checkpoints))
        assert anchor is not None
        assert anchor.cursor == SAMPLES
        return anchor

    def weights(self) -> dict[str, Any]:
        """Return the model's weights as the training has left them."""
        return model_weights(self.anchor())
