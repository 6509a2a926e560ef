"""The reaper: a row of its table, a test; only positive evidence, only after a grace, only once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse
from airflow.utils.state import TaskInstanceState
from torchx.specs import AppDef

from airflow_ett import config
from airflow_ett.errors import Fenced
from airflow_ett.events import Cause, JobKey, RunDir
from airflow_ett.hooks import reaper
from airflow_ett.hooks.notes import AIRFLOW, USER, Note, write_note
from airflow_ett.launch.gateway import Prepared
from airflow_ett.launch.opening import open_job
from airflow_ett.launch.request import Request
from airflow_ett.launch.root import Root
from airflow_ett.launch.status import SchedulerStatus
from airflow_ett.launch.storagelog import StorageLog
from airflow_ett.launch.watcher import Watcher
from airflow_ett.storage import FolderStorage
from airflow_ett.store import upgrade
from tests.api.server import SECRET, serving

KEY = JobKey("default", "ranker", "run-1", "train")
MARKED = Note("failed", USER, 2)
LOST = Note("failed", AIRFLOW, 2)
RETRIED = Note("up_for_retry", AIRFLOW, 2)
OLD_MARK = Note("failed", USER, 1)

STATES: dict[str | None, Cause | None] = {
    None: None,
    "scheduled": None,
    "queued": None,
    "restarting": None,
    "running": None,
    "deferred": None,
    "up_for_retry": None,
    "up_for_reschedule": None,
    "awaiting_input": None,
    "a state of a later Airflow": None,
    "success": Cause.USER_CANCELLED,
    "skipped": Cause.USER_CANCELLED,
    "upstream_failed": Cause.USER_CANCELLED,
    "removed": Cause.USER_CANCELLED,
    "failed": Cause.UNKNOWN,
}


@pytest.mark.parametrize(("state", "reason"), STATES.items())
def test_every_state_has_a_row(state: str | None, reason: Cause | None) -> None:
    assert reaper.reason_to_cancel(state, try_number=2) is reason


def test_no_state_of_airflow_is_forgotten() -> None:
    assert {state.value for state in TaskInstanceState} <= set(STATES)


@pytest.mark.parametrize(
    ("notes", "reason"),
    [
        ([MARKED], Cause.USER_CANCELLED),
        ([LOST], Cause.INFRASTRUCTURE),
        ([LOST, MARKED], Cause.USER_CANCELLED),
        ([MARKED, LOST], Cause.INFRASTRUCTURE),
        ([MARKED, RETRIED], Cause.USER_CANCELLED),
        ([RETRIED], Cause.UNKNOWN),
        ([OLD_MARK], Cause.UNKNOWN),
        ([Note("failed", "somebody", 2)], Cause.UNKNOWN),
    ],
)
def test_a_failed_task_is_told_apart_by_its_notes(notes: list[Note], reason: Cause) -> None:
    assert reaper.reason_to_cancel("failed", try_number=2, notes=notes) is reason


@pytest.mark.parametrize("state", [None, "none", "scheduled", "queued"])
def test_a_recorded_clear_is_carried_out(state: str | None) -> None:
    reason = reaper.reason_to_cancel(state, try_number=2, user_restart=True)
    assert reason is Cause.USER_RESTART


@pytest.mark.parametrize("state", ["running", "deferred", "up_for_retry", "restarting"])
def test_a_recorded_clear_is_left_to_the_try_that_lives(state: str) -> None:
    assert reaper.reason_to_cancel(state, try_number=2, user_restart=True) is None


@dataclass
class Cluster:
    """A scheduler with one app at a time, and an Airflow that answers what it is told to."""

    settings: config.Settings
    app: str = "RUNNING"
    state: Any = "deferred"
    submitted: int = 0
    cancelled: list[str] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    in_the_grace: Callable[[], None] | None = None

    def ask(self, key: JobKey) -> str | None:
        if isinstance(self.state, Exception):
            raise self.state
        answer: str | None = self.state
        return answer

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self.in_the_grace and seconds == reaper.GRACE_S:
            self.in_the_grace()

    def reap(self) -> list[str]:
        way: Any = self
        return reaper.reap(self.settings, ask=self.ask, gateway=lambda: way, sleep=self.sleep)

    def watch(self) -> Watcher:
        job = open_job(Root.of(self.settings), KEY, checkpoint_root="", try_number=2, max_tries=2)
        claim = job.log.claim(try_number=2, max_tries=2, mode="trigger")
        gateway: Any = self
        watcher = Watcher(job, claim, Request("train", [], "fake"), gateway)
        watcher.begin()
        return watcher

    def events(self, kind: str) -> list[Any]:
        log = Root.of(self.settings).log(KEY)
        return [event for event in log.launcher_events() if event.kind == kind]

    # what a gateway does
    def prepare(self, **request: Any) -> Prepared:
        return Prepared("fake", AppDef("app"), {}, None)

    def accelerators(self, prepared: Any) -> int:
        return 0

    def submit(self, prepared: Any, name: str) -> str:
        self.submitted += 1
        return f"fake://{name}"

    def app_id(self, prepared: Prepared, name: str) -> str | None:
        return None

    def find(self, name: str, scheduler: str, app_id: str | None = None) -> str | None:
        return f"fake://{name}"

    def status(self, handle: str) -> SchedulerStatus:
        return SchedulerStatus(self.app, raw=self.app)

    def cancel(self, handle: str) -> None:
        self.cancelled.append(handle)
        self.app = "CANCELLED"

    def log_location(self, handle: str, replica: int = 0) -> str | None:
        return None

    def last_lines(self, handle: str, replica: int, count: int) -> list[str]:
        return []


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """A running training, watched by a trigger; the reaper may cancel."""
    settings = config.load({"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__ETT__REAPER": "cancel"})
    cluster = Cluster(settings)
    cluster.watch()
    return cluster


@pytest.fixture(params=["in memory", "at the API"])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """The same, where its log is in an object store or at the API."""
    options = {"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__ETT__REAPER": "cancel"}
    if request.param == "in memory":
        from fsspec.implementations.memory import MemoryFileSystem

        cluster = Cluster(config.load(options | {"AIRFLOW__ETT__RUN_ROOT": "memory://runs"}))
        cluster.watch()
        yield cluster
        MemoryFileSystem.store.clear()
        MemoryFileSystem.pseudo_dirs[:] = [""]
        return
    url = f"sqlite:///{tmp_path}/ett.db"
    upgrade(url)
    with serving(url) as api:
        options["AIRFLOW__ETT__API_URL"], options["AIRFLOW__ETT__API_SECRET"] = api.url, SECRET
        cluster = Cluster(config.load(options | {"AIRFLOW__ETT__SQL_ALCHEMY_CONN": url}))
        cluster.watch()
        yield cluster


def test_by_default_it_only_reports(cluster: Cluster) -> None:
    cluster.state = "failed"
    cluster.settings = replace(cluster.settings, reaper="report")
    (line,) = cluster.reap()
    assert "ranker.train run run-1 generation 1" in line
    assert "task is failed: would be cancelled with [ett] reaper = cancel, cause unknown" in line
    assert cluster.cancelled == []
    assert cluster.slept == [reaper.GRACE_S]
    assert len(cluster.events("claimed")) == 1


def test_an_orphan_is_cancelled_once_and_its_job_closed(cluster: Cluster) -> None:
    cluster.state = "failed"
    write_note(Root.of(cluster.settings), KEY, MARKED)
    (line,) = cluster.reap()
    assert line.endswith("task is failed: closed as cancelled, cause user_cancelled")
    assert len(cluster.cancelled) == 1
    assert len(cluster.events("cancel_requested")) == 1
    (end,) = cluster.events("job_ended")
    assert (end.data["state"], end.data["cause"]) == ("cancelled", "user_cancelled")
    assert cluster.reap() == []
    assert (len(cluster.cancelled), cluster.submitted) == (1, 1)


def test_an_orphan_is_found_and_cancelled_wherever_its_log_lies(elsewhere: Cluster) -> None:
    elsewhere.state = "running"
    assert elsewhere.reap() == []
    elsewhere.state = "failed"
    assert write_note(Root.of(elsewhere.settings), KEY, MARKED)
    (line,) = elsewhere.reap()
    assert line.endswith("task is failed: closed as cancelled, cause user_cancelled")
    assert len(elsewhere.cancelled) == 1
    assert elsewhere.reap() == []
    other = replace(elsewhere.settings, deployment="staging")
    assert reaper.reap(other, ask=elsewhere.ask, sleep=elsewhere.sleep) == []


def test_a_training_that_airflow_lost_fails_by_infrastructure(cluster: Cluster) -> None:
    cluster.state = "failed"
    write_note(Root.of(cluster.settings), KEY, LOST)
    cluster.reap()
    (end,) = cluster.events("job_ended")
    assert (end.data["state"], end.data["cause"]) == ("failed", "infrastructure")
    assert cluster.events("claimed")[-1].data["mode"] == "again"
    assert cluster.submitted == 1


def test_a_healthy_task_is_left_alone_and_nobody_waits(cluster: Cluster) -> None:
    assert cluster.reap() == []
    assert cluster.slept == []
    assert len(cluster.events("claimed")) == 1


def test_a_job_that_has_ended_is_not_asked_about(cluster: Cluster) -> None:
    cluster.watch().user_cancel(0)
    cluster.state = AssertionError("asked")
    assert cluster.reap() == []


def airflow_error(kind: ErrorType) -> AirflowRuntimeError:
    return AirflowRuntimeError(ErrorResponse(error=kind))


def test_an_airflow_that_does_not_answer_is_no_evidence(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.state = airflow_error(ErrorType.API_SERVER_ERROR)
    assert cluster.reap() == []
    assert "left alone" in caplog.text
    assert (cluster.cancelled, cluster.slept) == ([], [])


def test_an_answer_that_changes_in_the_grace_saves_the_training(cluster: Cluster) -> None:
    cluster.state = "failed"
    cluster.in_the_grace = lambda: setattr(cluster, "state", "scheduled")
    assert cluster.reap() == []
    assert cluster.cancelled == []


def test_an_airflow_that_falls_silent_in_the_grace_saves_the_training(cluster: Cluster) -> None:
    cluster.state = "failed"
    silent = airflow_error(ErrorType.API_SERVER_ERROR)
    cluster.in_the_grace = lambda: setattr(cluster, "state", silent)
    assert cluster.reap() == []
    assert cluster.cancelled == []


def test_a_claim_in_the_grace_saves_the_training(cluster: Cluster) -> None:
    cluster.state = "failed"
    cluster.in_the_grace = lambda: cluster.watch() and None
    assert cluster.reap() == []
    assert cluster.cancelled == []


def test_a_claim_while_airflow_is_asked_saves_the_training(cluster: Cluster) -> None:
    cluster.state = "failed"
    watchers: list[Any] = []
    looks = iter([lambda: None, lambda: watchers.append(cluster.watch())])

    def ask(key: JobKey) -> str:
        next(looks)()
        return "failed"

    way: Any = cluster
    (line,) = reaper.reap(cluster.settings, ask=ask, gateway=lambda: way, sleep=cluster.sleep)
    assert "left alone" in line
    assert cluster.cancelled == []
    assert cluster.events("job_ended") == []
    assert watchers[0].poll() is None


def test_a_kill_hook_that_does_its_work_in_the_grace_is_not_repeated(cluster: Cluster) -> None:
    cluster.state = "failed"
    cluster.in_the_grace = lambda: cluster.watch().user_cancel(0)
    assert cluster.reap() == []
    assert len(cluster.cancelled) == 1


def test_the_old_watcher_is_fenced(cluster: Cluster) -> None:
    watcher = cluster.watch()
    cluster.state = "success"
    cluster.reap()
    with pytest.raises(Fenced):
        watcher.poll()


def test_another_deployments_trainings_are_not_looked_at(cluster: Cluster) -> None:
    cluster.state = "failed"
    cluster.settings = replace(cluster.settings, deployment="staging")
    assert cluster.reap() == []


def test_a_copied_run_directory_is_not_taken_for_the_job(cluster: Cluster) -> None:
    path = cluster.settings.run_root / KEY.path
    path.rename(path.with_name("g1-copy"))
    cluster.state = "failed"
    assert cluster.reap() == []


def test_an_odd_run_directory_does_not_hide_the_others(
    cluster: Cluster, write_job: Callable[..., RunDir], caplog: pytest.LogCaptureFixture
) -> None:
    odd = write_job(cluster.settings.run_root, dag_id="a", ended=False)
    log = StorageLog(FolderStorage(odd.path), replace(KEY, dag_id="a"))
    log.claim(try_number=1, max_tries=0, mode="task")
    log.append("job_ended", {"state": "a state of a later version"})
    cluster.state = "failed"
    (line,) = cluster.reap()
    assert "ranker.train" in line
    assert "cannot be judged" in caplog.text


@pytest.mark.parametrize("known", [True, False])
def test_a_task_that_is_not_there_counts_where_its_dag_is_known(
    monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    def get_dag(dag_id: str) -> str:
        assert dag_id == KEY.dag_id
        if not known:
            raise airflow_error(ErrorType.API_SERVER_ERROR)
        return dag_id

    instance = reaper.RuntimeTaskInstance
    monkeypatch.setattr(instance, "get_task_states", staticmethod(lambda **_: {}))
    monkeypatch.setattr(instance, "get_dag", staticmethod(get_dag))
    if known:
        assert reaper.ask_airflow(KEY) == "removed"
    else:
        with pytest.raises(AirflowRuntimeError):
            reaper.ask_airflow(KEY)
