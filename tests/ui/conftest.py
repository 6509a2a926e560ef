"""Reports made by hand, and the app around them."""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from airflow_ett.events import AttemptId, JobKey, Kind, LogWriter, RunDir, trainer_writer
from airflow_ett.store import Store, ingest_run_dir, open_store, tables, upgrade

# Airflow writes its configuration into its home when it is imported.
os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="ett-ui-"))

SECOND = 10**9
DAY = 86_400 * SECOND
BEGIN = 1_796_000_000 * SECOND

Report = dict[str, Any]


_FIRST = {
    "queue": 35 * SECOND,
    "hardware_setup": 15 * SECOND,
    "trainer_init": 10 * SECOND,
    "compile": 30 * SECOND,
    "train": 400 * SECOND,
    "failure_detection": 5 * SECOND,
}
_SECOND = {
    "trainer_init": 10 * SECOND,
    "train": 440 * SECOND,
    "replay": 20 * SECOND,
    "checkpoint_save": 15 * SECOND,
    "shutdown": 15 * SECOND,
    "unattributed": 5 * SECOND,
}


def _attempt(submission: int, **told: Any) -> Report:
    number = {"submission": submission, "scheduler_restart": 0, "elastic_restart": 0}
    layer = {"layer": "first" if submission == 1 else "relaunch", "levers": []}
    return number | layer | told


_COMPONENTS = {
    "scheduling": 50 * SECOND,
    "trainer_init": 20 * SECOND,
    "pt2_compile": 30 * SECOND,
    "effective": 840 * SECOND,
    "wasted": 40 * SECOND,
    "shutdown": 15 * SECOND,
    "unattributed": 5 * SECOND,
}


def make_report(**changes: Any) -> Report:
    """A job of 1000 s: 840 s effective on 8 accelerators, one failure that it recovered from."""
    report: Report = {
        "job": "0" * 20,
        "dag_id": "ranker",
        "run_id": "scheduled__2026-11-29T02:00",
        "task_id": "train",
        "map_index": -1,
        "generation": 1,
        "state": "succeeded",
        "quality": "complete",
        "quality_reasons": [],
        "frozen": True,
        "begin_ns": BEGIN,
        "wall_ns": 1000 * SECOND,
        "held_ns": 960 * SECOND,
        "effective_ns": 840 * SECOND,
        "ett_pct": 84.0,
        "ett_pct_held": 87.5,
        "ett_pct_paper": 92.0,
        "tts_ns": 50 * SECOND,
        "ttr": [{"ns": 30 * SECOND, "recovered": True, "cause": "preempted"}],
        "nof": 1,
        "nof_by_cause": {"preempted": 1},
        "components_ns": _COMPONENTS,
        "held_components_ns": _COMPONENTS | {"scheduling": 15 * SECOND, "wasted": 35 * SECOND},
        "phases_ns": _FIRST | _SECOND | {"train": 840 * SECOND, "trainer_init": 20 * SECOND},
        "levels_ns": {
            "effective": 840 * SECOND,
            "start": 50 * SECOND,
            "recovery": 30 * SECOND,
            "steady": 65 * SECOND,
            "shutdown": 15 * SECOND,
        },
        "positions_ns": {
            "effective": {"train": 840 * SECOND},
            "steady": {"checkpoint_save": 15 * SECOND},
        },
        "attempts": [
            _attempt(1, cause="preempted", phases_ns=_FIRST),
            _attempt(2, cause=None, phases_ns=_SECOND),
        ],
        "checkpoints": [],
        "compiles": [],
        "nos": 3,
        "utt_ns": 20 * SECOND,
        "wtt_ns": 35 * SECOND,
        "accelerators": 8,
        "released_ns": 0,
        "cause": None,
    }
    return report | changes


def make_silent(**changes: Any) -> Report:
    """A job whose trainer sent no events: scheduling is known, and no ETT%."""
    known = make_report(
        quality="launcher_only",
        quality_reasons=["no trainer events"],
        effective_ns=0,
        ett_pct=None,
        ett_pct_held=None,
        ett_pct_paper=None,
        tts_ns=1000 * SECOND,
        ttr=[],
        nof=0,
        nof_by_cause={},
        components_ns={"scheduling": 30 * SECOND, "unattributed": 970 * SECOND},
        held_components_ns={"scheduling": 10 * SECOND, "unattributed": 950 * SECOND},
        attempts=[_attempt(1, cause=None, phases_ns={"queue": 30 * SECOND})],
    )
    return known | changes


@pytest.fixture
def report() -> Callable[..., Report]:
    """Make a report of a measured job; keywords replace its fields."""
    return make_report


@pytest.fixture
def silent() -> Callable[..., Report]:
    """Make a report of a job without trainer events; keywords replace its fields."""
    return make_silent


def _keep_report(store: Store, report: Report) -> None:
    """Store a job as its report tells it, all that the report leaves out empty."""
    defaults = {"deployment": "default", "end_ns": report["begin_ns"] + report["wall_ns"]}
    whole = defaults | report
    empty = {"attempts": len(report.get("attempts", ())), "revision": 1, "rolled_up": False}
    known = [ttr["ns"] for ttr in report["ttr"] if ttr["recovered"]]
    row = {"ttr_ns": sum(known), "recoveries": len(known), "updated_ns": BEGIN} | empty
    columns = [column.name for column in tables.job.columns if column.name not in row]
    row |= {name: whole.get(name) for name in columns} | {"result": whole}
    store.write(lambda connection: connection.execute(insert(tables.job), row))


@pytest.fixture
def keep_report() -> Callable[[Store, Report], None]:
    """Put a report into a store: ``keep_report(store, report(...))``."""
    return _keep_report


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The app with an empty store, and a user who may read the Dag ``ranker`` alone."""
    pytest.importorskip("airflow.api_fastapi")
    from tests.ui.made_site import OneDagManager, Site

    monkeypatch.setattr("airflow.api_fastapi.core_api.security.get_auth_manager", OneDagManager)
    monkeypatch.setattr("airflow.models.dag.DagModel.get_team_name", lambda dag_id: None)
    site = Site(f"sqlite:///{tmp_path}/ett.db", _keep_report)
    yield site
    site.store.close()


class JobWriter:
    """Writes the logs of jobs as launcher and trainer would, and ingests them."""

    def __init__(self, run_root: Path, url: str) -> None:
        self.run_root = run_root
        self.url = url
        upgrade(url)

    def write(
        self, dag_id: str, run_id: str, begin_ns: int, *, failures: int = 0, compile_s: int = 20
    ) -> None:
        """Write and ingest one job of four accelerators, at 100 samples a second."""
        key = JobKey("default", dag_id, run_id, "train")
        run = RunDir(self.run_root / key.path)
        launcher = LogWriter(run.launcher / "00000001.jsonl", job=key.id, writer="launcher-1")
        opened = {"key": asdict(key), "scheduler": "local_detached", "accelerators": 4}
        launcher.append(Kind.JOB_OPENED, opened, time_ns=begin_ns)
        now, cursor = begin_ns, 0
        for number in range(1, failures + 2):
            attempt = AttemptId(number)
            last = number == failures + 1
            layer = "first" if number == 1 else "relaunch"
            submitted = {"submission": number, "app": f"a{number}", "layer": layer, "try": 1}
            launcher.append(Kind.SUBMITTED, submitted, time_ns=now, attempt=attempt)
            now = self._attempt(run, key, attempt, now, cursor, compile_s=compile_s, last=last)
            ended = {"cause": None if last else "preempted", "evidence": {}}
            launcher.append(Kind.ATTEMPT_ENDED, ended, time_ns=now, attempt=attempt)
            cursor += 10_000
        launcher.append(Kind.JOB_ENDED, {"state": "succeeded", "cause": None}, time_ns=now)
        launcher.close()
        store = open_store(self.url)
        ingest_run_dir(store, run.path)
        store.close()

    def _attempt(
        self,
        run: RunDir,
        key: JobKey,
        attempt: AttemptId,
        now: int,
        cursor: int,
        *,
        compile_s: int,
        last: bool,
    ) -> int:
        """Start at ``cursor``, train for 120 s (20 of them lost by a failure); return the end."""
        name = trainer_writer(attempt, 0, 100 + attempt.submission)
        log = LogWriter(
            run.nodes / f"{name}.jsonl", job=key.id, writer=name, attempt=attempt, rank=0
        )
        now += 3 * SECOND
        log.append(Kind.PROCESS_STARTED, {"role": "trainer", "pid": 1, "host": "n"}, time_ns=now)
        now += 4 * SECOND
        hwm = cursor and cursor + 2_000
        log.append(Kind.SESSION_STARTED, {"cursor_hwm": hwm}, time_ns=now)
        for span, (phase, seconds) in enumerate((("first_batch", 2), ("compile", compile_s))):
            begin = {"span": span, "phase": phase, "lane": "main"}
            log.append(Kind.PHASE_BEGIN, begin, time_ns=now)
            now += seconds * SECOND
            log.append(Kind.PHASE_END, {"span": span}, time_ns=now)
        for _ in range(12):
            interval = {
                "from": now,
                "to": now + 10 * SECOND,
                "cursor_from": cursor,
                "cursor_to": cursor + 1_000,
                "steps": 10,
                "step_ns": 10 * SECOND,
                "wait_ns": 0,
                "other_ns": 0,
            }
            now, cursor = now + 10 * SECOND, cursor + 1_000
            log.append(Kind.INTERVAL, interval, time_ns=now)
        if last:
            log.append(Kind.SESSION_ENDED, {"outcome": "success", "cursor": cursor}, time_ns=now)
            now += 2 * SECOND
            log.append(Kind.PROCESS_ENDED, {"role": "trainer", "exit_code": 0}, time_ns=now)
        log.close()
        return now + SECOND


@pytest.fixture(scope="session")
def job_writer() -> type[JobWriter]:
    """Writes jobs' logs and ingests them: ``job_writer(run_root, url).write(...)``."""
    return JobWriter
