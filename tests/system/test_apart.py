"""Workers and a triggerer that reach the API alone: no shared storage and no database."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_ett.demo.stack import AirflowStack
from airflow_ett.events import Event, JobKey, Layer
from airflow_ett.launch.root import Root
from airflow_ett.metric import measure
from airflow_ett.store import Store, open_store, queries, upgrade
from tests.system.conftest import Training

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(400)]

SECRET = "a-secret-of-more-than-32-characters"
FOLDER = Path(__file__).parent


class ApartStack(AirflowStack):
    """An Airflow whose API server alone can use the ETT database."""

    def start_component(self, component: str) -> None:
        """Start it; the scheduler's environment is its workers', too."""
        shared = self.env
        if component != "api-server":
            nobody = "postgresql+psycopg://nobody@127.0.0.1:1/none"
            self.env = {**shared, "AIRFLOW__ETT__SQL_ALCHEMY_CONN": nobody}
        try:
            super().start_component(component)
        finally:
            self.env = shared


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApartStack]:
    """Such an Airflow; its metadata database is sealed off from users' code, too."""
    home = tmp_path_factory.mktemp("apart")
    database = f"sqlite:///{home}/ett.db"
    upgrade(database)
    stack = ApartStack(home, dags=FOLDER / "dags")
    paths = [str(FOLDER / "sealed"), os.environ.get("PYTHONPATH", "")]
    stack.env |= {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TMPDIR": str(home),
        "ROLLUP_DATABASE": database,
        "AIRFLOW__ETT__API_URL": stack.url,
        "AIRFLOW__ETT__API_SECRET": SECRET,
        "AIRFLOW__ETT__RUN_ROOT": "/proc/nowhere",
        "AIRFLOW__ETT__CHECKPOINT_ROOT": str(home / "checkpoints"),
        "AIRFLOW__ETT__SQL_ALCHEMY_CONN": database,
    }
    stack.start()
    try:
        yield stack
    finally:
        stack.stop()


@pytest.fixture
def store(stack: ApartStack) -> Iterator[Store]:
    """What the API server has stored."""
    with contextlib.closing(open_store(f"sqlite:///{stack.home}/ett.db")) as store:
        yield store


class Apart(Training):
    """A training whose log the API holds."""

    @property
    def key(self) -> JobKey:
        return JobKey("default", self.dag_id, self.run_id, "train")

    def all_events(self) -> list[Event]:
        storage = Root(f"{self.stack.url}/ett/api/v1", SECRET).log(self.key).storage
        return [event for folder in ("launcher", "nodes") for event in storage.events(folder)]

    def events(self, kind: str, generation: int = 1) -> list[Event]:
        return [event for event in self.all_events() if event.kind == kind]


def test_r34_a_training_is_killed_and_resumes_where_the_api_is_all_there_is(
    stack: ApartStack, store: Store, tmp_path: Path
) -> None:
    """Field report R34, for operator, trigger and rollup: none of them touches Airflow's database.

    The report wants the ETT database reachable; here it is even that to the rollup alone.
    """
    training = Apart(stack, "training_deferred", "apart", tmp_path / "place")
    stack.api.wait_for_dag(training.dag_id)
    conf = {"place": str(training.place), "steps": 120}
    stack.api.trigger(training.dag_id, training.run_id, conf)
    training.until_cursor(40)
    os.kill(training.starts()[-1], signal.SIGKILL)
    assert training.end() == "success"
    assert training.never_twice()
    told = [event.data["layer"] for event in training.events("submitted")]
    assert told == [Layer.FIRST, Layer.RELAUNCH]
    assert {e.data["mode"] for e in training.events("claimed")} == {"task", "trigger"}
    output = stack.api.xcom(training.dag_id, training.run_id, "train")
    assert output["cursor"] == 120
    assert output["run_dir"].endswith(f"/ett/api/v1/logs/{training.key.id}")
    (row,) = queries.jobs(store, dag_ids=[training.dag_id])
    numbers = measure(training.all_events()).as_dict()
    assert (row.job, row.state, row.nof) == (training.key.id, "succeeded", 1)
    assert (row.result["quality"], row.result["quality_reasons"]) == ("complete", [])
    for name in ("wall_ns", "phases_ns", "levels_ns", "attempts"):
        assert row.result[name] == numbers[name], name
    assert sum(row.result["phases_ns"].values()) == row.result["wall_ns"]
    assert row.result["phases_ns"]["train"] > 2 * 10**9
    assert [attempt["cause"] for attempt in numbers["attempts"]] == ["infrastructure", None]
    log = stack.api.log(training.dag_id, training.run_id, "train", 1)
    assert "[rank 0] training from 0" in log
    assert "ett1." not in log
    assert not (stack.home / "touched").exists()


def test_r34_the_rollup_reaches_its_own_database_and_not_airflows(
    stack: ApartStack, store: Store
) -> None:
    stack.api.wait_for_dag("rollup")
    run_id = stack.api.trigger("rollup", "apart")
    assert stack.api.wait_for_run("rollup", run_id) == "success"
    assert not (stack.home / "touched").exists()


def test_r34_a_task_that_did_touch_it_would_be_found(stack: ApartStack) -> None:
    stack.api.wait_for_dag("meddling")
    run_id = stack.api.trigger("meddling", "apart")
    assert stack.api.wait_for_run("meddling", run_id) == "failed"
    touched = stack.home / "touched"
    assert len(touched.read_text().splitlines()) == 1
    touched.unlink()


def test_a_mark_is_noted_at_the_api(stack: ApartStack, tmp_path: Path) -> None:
    """The api-server notes it by its own address; the trigger cancels."""
    training = Apart(stack, "training_deferred", "apart-marked", tmp_path / "place")
    stack.api.wait_for_dag(training.dag_id)
    conf = {"place": str(training.place), "steps": 4000}
    stack.api.trigger(training.dag_id, training.run_id, conf)
    training.until_cursor(3)
    training.until(lambda: training.events("claimed")[-1].data["mode"] == "trigger")
    stack.api.mark(training.dag_id, training.run_id, "train", "failed")
    training.until(training.trainer_is_gone)
    (end,) = training.until(lambda: training.events("job_ended"))
    assert end.data["state"] == "cancelled"
    (note,) = training.until(lambda: training.events("airflow_state"))
    assert (note.data["state"], note.data["by"]) == ("failed", "user")
