"""A launched job without a launcher: a run directory, its context, and real processes in it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.events import Event, JobContext, JobKey, Kind, RunDir, read_log

_ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Job:
    """One job; ``run`` and ``start`` execute Python code as its trainer."""

    folder: Path
    context: JobContext
    processes: list[subprocess.Popen[str]]

    @property
    def run_dir(self) -> RunDir:
        return RunDir(Path(self.context.run_dir))

    def environ(self, **more: str) -> dict[str, str]:
        paths = {"PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "1"}
        return {**os.environ, **paths, "ETT_JOB": self.context.encode(), **more}

    def script(self, code: str) -> Path:
        path = self.folder / f"script{len(list(self.folder.glob('script*.py')))}.py"
        path.write_text(textwrap.dedent(code))
        return path

    def start(self, *command: str, **environ: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *command],
            env=self.environ(**environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def run(self, code: str, **environ: str) -> subprocess.CompletedProcess[str]:
        process = self.start(str(self.script(code)), **environ)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def agent(self, code: str, *options: str, **environ: str) -> subprocess.Popen[str]:
        script = str(self.script(code))
        return self.start(
            "-m", "airflow_ett.trainer.agent", *options, "--script", script, **environ
        )

    def events(self, *kinds: Kind) -> list[Event]:
        logs = [read_log(path) for path in self.run_dir.logs()]
        assert not any(log.bad for log in logs)
        events = [event for log in logs for event in log.events]
        return [event for event in events if not kinds or event.kind in kinds]

    def next_submission(self, **changes: Any) -> None:
        """Relaunch: the same job under its next submission."""
        number = self.context.submission + 1
        self.context = replace(self.context, submission=number, epoch=number, **changes)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A fresh job; whatever still runs at the end is killed."""
    run = tmp_path / "run"
    run.mkdir()
    key = JobKey("test", "dag", "run", "train")
    context = JobContext(key, 1, str(run), str(run / "checkpoints"), 1, grace_s=20.0)
    made = Job(tmp_path, context, [])
    yield made
    for process in made.processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def covered() -> Callable[[list[Event]], list[tuple[int, int]]]:
    """A function that returns the gaps between the first batch request and the session's end.

    Phases still open last until the end; only the main lane counts.
    """

    def gaps(events: list[Event]) -> list[tuple[int, int]]:
        end = next(e.time_ns for e in events if e.kind == Kind.SESSION_ENDED)
        ends = {e.data["span"]: e.time_ns for e in events if e.kind == Kind.PHASE_END}
        begins = [e for e in events if e.kind == Kind.PHASE_BEGIN and e.data.get("lane") == "main"]
        first = next(e.time_ns for e in begins if e.data["phase"] == "first_batch")
        pieces = [(e.time_ns, ends.get(e.data["span"], end)) for e in begins]
        intervals = [e.data for e in events if e.kind == Kind.INTERVAL]
        pieces += [(i["from"], i["to"]) for i in intervals]
        reached, found = first, []
        for begin, stop in sorted(pieces):
            if begin > reached:
                found.append((reached, begin))
            reached = max(reached, stop)
        return found + ([(reached, end)] if reached < end else [])

    return gaps


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What holds back the copies beside a training, until the test opens it."""
    from airflow_ett.trainer import staging
    from tests.trainer.saving import Gate

    made = Gate()
    monkeypatch.setattr(staging, "_copy", made)
    yield made
    made.opened.set()


@pytest.fixture
def begin(job: Job, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """A function that begins a training that has saved once: so it has its buffers."""
    from airflow_ett.trainer import staging
    from tests.trainer.saving import Training

    monkeypatch.setattr(staging, "SMALL", 1)  # its tensors are
    made: list[Training] = []

    def begin(objects: Mapping[str, Any], *inputs: Any, **options: Any) -> Training:
        training = Training(job, objects, **options)
        made.append(training)
        training.step(*inputs)
        training.save()
        training.step(*inputs)
        training.saver.join()
        return training

    yield begin
    for training in made:
        training.saver.join()
        training.saver.close()
