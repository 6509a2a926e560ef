"""What an attempt that is over leaves behind, with real processes on ``local_detached``."""

from __future__ import annotations

import json
import logging
import os
import signal
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.checkpoints import newest_committed
from airflow_ett.events import Cause, Event, JobKey, Kind
from airflow_ett.launch.aftermath import Outcome
from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.opening import open_job
from airflow_ett.launch.request import Request
from airflow_ett.launch.root import Root
from airflow_ett.launch.schedulers.appdir import AppDir
from airflow_ett.launch.schedulers.local_detached import create_scheduler
from airflow_ett.launch.storagelog import StorageLog
from airflow_ett.launch.watcher import Watcher
from airflow_ett.storage import FolderStorage

KEY = JobKey("default", "dag", "run", "train")

FAILS = """
import os, time
from airflow_ett.trainer import Session
with Session() as ett:
    for number in ett.track(range(1, 1000)):
        ett.step(number * 10)
        if number >= 7:
            time.sleep(0.05)
        if number == 7 and os.environ["RANK"] == os.environ["FAILING"]:
            print("\\x1b[31mloss is nan\\x1b[0m", "x" * 5000)
            raise ValueError(f"bad batch, pid {os.getpid()}")
"""


@dataclass
class Training:
    """One job on a scheduler of its own; ``run`` sees one try through to its outcome."""

    folder: Path
    tries: int = 0
    watcher: Watcher | None = None
    apps: Path = field(init=False)

    def __post_init__(self) -> None:
        self.apps = self.folder / "apps"

    @property
    def log(self) -> StorageLog:
        return StorageLog(FolderStorage(self.folder / "runs" / KEY.path), KEY)

    def script(self, code: str) -> list[str]:
        path = self.folder / "train.py"
        path.write_text(textwrap.dedent(code))
        return ["--script", str(path)]

    def start(self, args: list[str], cfg: Any = None, env: Any = None) -> Watcher:
        self.tries += 1
        job = open_job(
            Root(str(self.folder / "runs")),
            KEY,
            checkpoint_root="",
            try_number=self.tries,
            max_tries=9,
        )
        claim = job.log.claim(try_number=self.tries, max_tries=9, mode="task")
        request = Request(
            "train", args, "local_detached", cfg or {}, env=env or {}, max_relaunches=0
        )

        def scheduler(session: str, **_: object) -> Any:
            return create_scheduler(session, state_dir=self.apps)

        gateway = Gateway({"local_detached": scheduler})
        self.watcher = Watcher(job, claim, request, gateway, poll_interval_s=0.2)
        self.watcher.begin()
        return self.watcher

    def run(self, args: list[str], **env: str) -> Outcome:
        return self.follow(self.start(args, env=env))

    def follow(self, watcher: Watcher) -> Outcome:
        found: list[Outcome] = []

        def ended() -> bool:
            outcome = watcher.poll()
            found.extend([outcome] if outcome else [])
            return bool(found)

        until(ended)
        return found[0]

    def told(self, kind: Kind) -> list[Event]:
        return [event for event in self.log.launcher_events() if event.kind == kind]


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.05)


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    """A training; its app is told to end when the test is over."""
    training = Training(tmp_path)
    yield training
    if training.watcher is not None:
        training.watcher.cancel(Cause.USER_CANCELLED)


def test_r21_the_failing_nodes_last_words_are_kept_and_raised(training: Training) -> None:
    outcome = training.run([*training.script(FAILS), "-j", "2x1"], FAILING="1")
    (ended,) = training.told(Kind.ATTEMPT_ENDED)
    evidence = ended.data["evidence"]
    told = {"source": "agent", "replica": 1, "node": 1, "exit_code": 1, "signal": None}
    assert told.items() <= evidence.items()
    assert evidence["host"] == os.uname().nodename
    assert evidence["handle"] == outcome.handle
    log = Path(evidence["log"])
    assert log.is_absolute()
    assert log.name == "trainer-1"
    assert "ValueError: bad batch" in log.read_text()
    assert evidence["lines"][-1].startswith("ValueError: bad batch")
    assert evidence["lines"][0].startswith("loss is nan xxx")
    assert max(map(len, evidence["lines"])) < 500
    assert ended.data["cursor"] is not None

    assert outcome.cause is Cause.APPLICATION
    for part in ("application", "exit code: 1", f"rank 1 on {os.uname().nodename}", str(log)):
        assert part in outcome.message
    assert str(outcome.handle) in outcome.message
    assert "Last lines of node 1's output:\n  loss is nan" in outcome.message
    assert outcome.message.count("Traceback") == 1


def test_where_the_output_is_is_known_while_it_runs(training: Training) -> None:
    training.run([*training.script(FAILS)], FAILING="0")
    first = training.told(Kind.SCHEDULER_STATE)[0]
    assert first.data["state"] != "FAILED"
    log = Path(first.data["log"])
    assert log.is_absolute()
    assert "loss is nan" in log.read_text()


def test_the_same_error_at_the_same_cursor_is_told_the_second_time(training: Training) -> None:
    args = training.script(FAILS)
    first, second = (training.run(args, FAILING="0") for _ in range(2))
    assert (first.repeated, second.repeated) == (False, True)
    assert first.cursor == second.cursor == 70
    assert "same error at cursor 70" in second.message
    assert json.loads(json.dumps(second.as_dict()))["repeated"] is True
    cursors = [event.data["cursor"] for event in training.told(Kind.ATTEMPT_ENDED)]
    assert cursors == [70, 70]


def test_a_session_that_never_reached_a_batch_ended_at_cursor_zero(training: Training) -> None:
    args = training.script("""
        from airflow_ett.trainer import Session
        with Session():
            raise FileNotFoundError("no data set")
    """)
    outcomes = [training.run(args) for _ in range(2)]
    assert [outcome.repeated for outcome in outcomes] == [False, True]


def test_what_nobody_measured_is_no_repetition(training: Training) -> None:
    args = training.script("raise ConnectionError('no storage today')")
    outcomes = [training.run(args) for _ in range(2)]
    assert [outcome.repeated for outcome in outcomes] == [False, False]
    assert [outcome.cursor for outcome in outcomes] == [None, None]


SAVES = """
import time
from pathlib import Path
from airflow_ett import checkpoints
from airflow_ett.trainer import Session
from airflow_ett.trainer.place import read_place
from airflow_ett.storage import FolderStorage

place, cursor = read_place(), 0
print("told", place.context.grace_s)
with Session() as ett:
    for _ in ett.track(range(100_000)):
        time.sleep(0.005)
        cursor += 1
        ett.step(cursor)
    folder = Path(place.context.checkpoints, checkpoints.folder_name(cursor, place.attempt))
    folder.mkdir(parents=True)
    time.sleep(2.5)
    checkpoints.commit(
        folder, job=place.context.key.id, attempt=place.attempt, epoch=1, cursor=cursor
    )
"""


def test_r26_a_save_longer_than_the_schedulers_own_grace_is_committed(
    training: Training, caplog: pytest.LogCaptureFixture
) -> None:
    """A second here stands for 30: the scheduler's default is 1, the save takes 2.5, 6 are asked.

    The preemption comes from outside, as a SIGTERM that nobody requested.
    """
    args = [*training.script(SAVES), "--grace_s", "6"]
    with caplog.at_level(logging.WARNING):
        watcher = training.start(args, cfg={"grace_s": 1})
    assert "grace_s" not in caplog.text
    log = training.log

    def trains() -> bool:
        record = log.cursor()
        return record is not None and record.cursor > 20

    until(trains)
    status = AppDir(next(training.apps.iterdir())).read_status()
    assert status is not None
    assert status.supervisor is not None
    os.kill(status.supervisor.pid, signal.SIGTERM)
    outcome = training.follow(watcher)
    assert outcome.cause is Cause.PREEMPTED
    saved = newest_committed(f"{log.place}/checkpoints")
    assert saved is not None
    assert saved.cursor == outcome.cursor
    assert "told 6.0" in Path(training.told(Kind.SCHEDULER_STATE)[0].data["log"]).read_text()
    assert f"next resumes from: {saved.uri}" in outcome.message


def test_r26_a_scheduler_that_grants_less_is_warned_of_at_the_start(
    bench: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    prepare = bench.gateway.prepare

    def less(**request: Any) -> Any:
        prepared = prepare(**request)
        prepared.grace_s, prepared.grace_shortfall = 120.0, "30 s instead of 120 s"
        return prepared

    monkeypatch.setattr(bench.gateway, "prepare", less)
    bench.watch()
    (warning,) = (record for record in caplog.records if record.levelno == logging.WARNING)
    assert f"Job {KEY}, submission 1: 30 s instead of 120 s" in warning.getMessage()
    assert [context.grace_s for context in bench.gateway.contexts] == [120.0]
