"""One training from its first try to its end, launched and watched as its Airflow task does it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_ett.cli.logs import Jobs
from airflow_ett.events import JobKey
from airflow_ett.launch.aftermath import Outcome
from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.opening import open_job
from airflow_ett.launch.request import Request
from airflow_ett.launch.root import Root
from airflow_ett.launch.watcher import Watcher
from airflow_ett.metric.phases import COMPONENTS

POLL_S = 0.2
"""So short that a watcher looks as often after a quiet hour as in the first seconds."""
TRIES = 4
LIMIT_S = 3600.0
HOST = Path(__file__).with_name("host.py")

_CLEARED = ("ETT_", "TORCH", "TRITON_", "AIRFLOW", "TMPDIR")


@dataclass(frozen=True, slots=True)
class Training:
    """``retry_delay_s`` lies between a failure and the next try; None: relaunched within the try.

    ``folder`` is this training's alone: its log, its checkpoints, its caches. Its path is short:
    the loader's processes meet at sockets below it, whose paths may have 107 characters. Other
    runs of the DAG may train there before, and leave it their caches.
    """

    folder: Path
    module: str
    arguments: Sequence[str]
    retry_delay_s: float | None
    gpus: int = 0
    run_id: str = "run"

    def run(self) -> tuple[Mapping[str, Any], str | None]:
        """Return the job's numbers as ``report --json`` has them, and its last checkpoint.

        Raises ``RuntimeError`` for a training that does not end well.
        """
        with _environment(self.folder):
            outcome = self._tries()
            run_dir = self.folder / "runs" / self._key.path
            (job,) = Jobs([str(run_dir)], COMPONENTS).measure()
        return job.as_dict(), outcome.checkpoint

    def _tries(self) -> Outcome:
        for number in range(1, TRIES + 1):
            outcome = self._try(number)
            if outcome.cause is None:
                return outcome
            time.sleep(self.retry_delay_s or 0.0)
        raise RuntimeError(f"not trained in {TRIES} tries: {outcome.message}")

    def _try(self, number: int) -> Outcome:
        root = Root(str(self.folder / "runs"))
        job = open_job(root, self._key, checkpoint_root="", try_number=number, max_tries=TRIES)
        claim = job.log.claim(try_number=number, max_tries=TRIES, mode="task")
        watcher = Watcher(job, claim, self._request(), Gateway(), poll_interval_s=POLL_S)
        watcher.begin()
        limit = time.monotonic() + LIMIT_S
        try:
            while (outcome := watcher.poll()) is None:
                if time.monotonic() > limit:
                    raise RuntimeError(f"not over after {LIMIT_S:g} s: {watcher.handle}")
                time.sleep(watcher.pause_s)
        except BaseException:
            watcher.user_cancel(wait_s=60.0)
            raise
        return outcome

    @property
    def _key(self) -> JobKey:
        return JobKey("bench", "ett", self.run_id, "train")

    def _request(self) -> Request:
        script = ["--script", str(HOST), "--gpu", str(self.gpus), "--"]
        arguments = [*script, str(self.folder / "hosts"), self.module, *self.arguments]
        return Request(
            "train",
            arguments,
            "local_detached",
            env={"OMP_NUM_THREADS": "1"},
            cache_root=str(self.folder / "cache"),
            max_relaunches=TRIES - 1 if self.retry_delay_s is None else 0,
        )


@contextmanager
def _environment(folder: Path) -> Iterator[None]:
    """Let nothing of this shell's settings reach the trainer, caches and switches above all."""
    before = dict(os.environ)
    for name in before:
        if name.startswith(_CLEARED):
            del os.environ[name]
    os.environ["AIRFLOW_HOME"] = str(folder)
    (folder / "hosts").mkdir(exist_ok=True)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
