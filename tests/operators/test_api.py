"""Training tasks whose logs the API holds: neither a run directory nor the database is theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.errors import ConfigurationError, JobLogError
from airflow_ett.events import JobState
from airflow_ett.launch.root import Root
from airflow_ett.store import queries, upgrade
from tests.api.server import SECRET, Api, serving
from tests.operators.test_memory import Store


@pytest.fixture
def api(desk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """The API; tasks are told of it and of the checkpoints' folder alone."""
    monkeypatch.setattr("airflow_ett.operators.training._LOG_PAUSE_S", 0.05)
    url = f"sqlite:///{tmp_path}/ett.db"
    upgrade(url)
    with serving(url) as server:
        for name, value in {
            "API_URL": server.url,
            "API_SECRET": SECRET,
            "RUN_ROOT": "/proc/nowhere",
            "CHECKPOINT_ROOT": f"{tmp_path}/checkpoints",
        }.items():
            monkeypatch.setenv(f"AIRFLOW__ETT__{name}", value)
        yield server


def words(api: Api, desk: Any, kind: str) -> list[Any]:
    log = Root(api.base, SECRET).log(desk.key)
    return [event for event in log.launcher_events() if event.kind == kind]


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_training_needs_the_api_alone(desk: Any, api: Api, deferrable: bool) -> None:
    lines = [desk.until_fired] if deferrable else []
    trainer = "; ".join([*lines, f"printenv ETT_TOKEN > {desk.root}/token", "echo trained"])
    result = desk.run(desk.task(trainer, deferrable=deferrable), desk.context())
    assert result["run_dir"] == api.place(desk.key.id)
    (row,) = queries.jobs(api.store)
    assert (row.job, row.state) == (desk.key.id, JobState.SUCCEEDED)
    modes = [event.data["mode"] for event in words(api, desk, "claimed")]
    assert modes == (["task", "trigger"] if deferrable else ["task"])
    token = (desk.root / "token").read_text().strip()
    assert token.split(".")[:3] == ["ett1", desk.key.id, "trainer"]


def test_a_trainers_secret_is_shown_nowhere(
    desk: Any, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = f"printenv ETT_TOKEN | tee {desk.root}/token; echo after it; exit 3"
    with caplog.at_level("INFO"), pytest.raises(Exception, match="exited with code 3") as raised:
        desk.run(desk.task(trainer), desk.context())
    token = (desk.root / "token").read_text().strip()
    assert token.startswith("ett1.")
    told = str([event.data for event in Root(api.base, SECRET).log(desk.key).launcher_events()])
    assert "after it" in told
    for shown in (str(raised.value), caplog.text, told, str(api.store)):
        assert token not in shown
        assert token.rpartition(".")[2] not in shown
    storage = api.storage(desk.key.id)
    names = [
        f"launcher/submissions/{entry.name}" for entry in storage.entries("launcher/submissions")
    ]
    assert len(names) == 1
    assert all(b"ett1." not in (storage.read(name) or b"") for name in names)


def test_checkpoints_need_a_place_of_their_own(
    desk: Any, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__ETT__CHECKPOINT_ROOT", "")
    with pytest.raises(ConfigurationError, match="checkpoint_root") as raised:
        desk.run(desk.task("true"), desk.context())
    assert raised.value.parameter == "checkpoint_uri"
    assert desk.app_states() == []


def test_a_job_keeps_the_place_that_it_was_begun_at(
    desk: Any, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store()
    with pytest.raises(Exception, match="exited with code 1"):
        desk.run(desk.task("exit 1"), desk.context(1, 2, task_state_store=store))
    with monkeypatch.context() as changed:
        changed.setenv("AIRFLOW__ETT__API_URL", "")
        changed.setenv("AIRFLOW__ETT__RUN_ROOT", f"{desk.root}/runs")
        task = desk.task("exit 0", unknown_grace=0.2)
        with pytest.raises(JobLogError, match=rf"was begun in {api.base}.*run_root"):
            desk.run(task, desk.context(2, 2, task_state_store=store))
    assert len(desk.app_states()) == 1
    desk.run(desk.task("exit 0"), desk.context(2, 2, task_state_store=store))
    layers = [event.data["layer"] for event in words(api, desk, "submitted")]
    assert layers == ["first", "airflow"]


def test_an_api_that_has_lost_its_database_is_told_from_a_new_job(
    desk: Any, api: Api, tmp_path: Path
) -> None:
    store = Store()
    with pytest.raises(Exception, match="exited with code 1"):
        desk.run(desk.task("exit 1"), desk.context(1, 2, task_state_store=store))
    url = f"sqlite:///{tmp_path}/other.db"
    upgrade(url)
    kept = store["airflow_ett_job"]
    with serving(url) as other, pytest.MonkeyPatch.context() as moved:
        moved.setenv("AIRFLOW__ETT__API_URL", other.url)
        store["airflow_ett_job"] = kept | {"run_dir": other.place(desk.key.id)}
        task = desk.task("exit 0", unknown_grace=0.2)
        with pytest.raises(JobLogError, match="has the API lost its database"):
            desk.run(task, desk.context(2, 2, task_state_store=store))
    assert len(desk.app_states()) == 1
