"""Bad configuration fails at DAG parse, by the parameter's name; limits are absolute."""

import json
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Connection
from airflow.sdk.exceptions import AirflowRescheduleException, AirflowSkipException

import airflow_ett.operators.stopping as module
from airflow_ett.errors import ConfigurationError, TrainingFailed
from airflow_ett.events import CursorFile, JobKey, JobState
from airflow_ett.hooks.torchx import TorchXHook
from airflow_ett.launch import gateway as gateway_module
from airflow_ett.launch.limits import Limits
from airflow_ett.launch.opening import open_job
from airflow_ett.launch.root import Root
from airflow_ett.launch.status import SchedulerStatus
from airflow_ett.launch.storagelog import StorageLog
from airflow_ett.operators import ModelPublishOperator, TorchXTrainingOperator
from airflow_ett.retry import ETTRetryPolicy

GOOD: dict[str, Any] = {"task_id": "train", "component_args": ["--m", "pkg.train"]}


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("scheduler", "kubernetis"),
        ("scheduler", "local_cwd"),
        ("component", "no_such_component"),
        ("component", "/nowhere/components.py:train"),
        ("cfg", {"no_such_option": 1}),
        ("poll_interval", 0),
        ("poll_interval", "1"),
        ("start_timeout", 0),
        ("start_timeout", timedelta(seconds=-1)),
        ("start_timeout", "an hour"),
        ("unknown_grace", None),
        ("unknown_grace", True),
        ("unknown_grace", float("inf")),
        ("unknown_grace", float("nan")),
        ("max_relaunches", -1),
        ("max_relaunches", 1.5),
        ("cfg", {"grace_s": timedelta(seconds=5)}),
        ("cfg", {"cwd": Path("work")}),
        ("resource", "no.such.resource"),
        ("resource", 5),
        ("resource", ""),
        ("component", None),
        ("component_args", "--m pkg.train"),
        ("component_args", {"m": "pkg.train"}),
        ("component_args", None),
        ("component_args", ["--m", None]),
        ("component_args", ["--m", ["pkg.train"]]),
        ("component_args", ["--m", "pkg\0train"]),
        ("env", "A=1"),
        ("env", [("A", "1")]),
        ("env", {"A": None}),
        ("env", {1: 2}),
        ("env", {"A=B": "1"}),
        ("env", {"A": "x\0y"}),
        ("cfg", "grace_s=5"),
        ("checkpoint_uri", 5),
        ("resume", None),
        ("resume", ""),
        ("init_from", 7),
        ("torchx_conn_id", 7),
        ("deferrable", "no"),
        ("poll_interval", 1e9),
        ("unknown_grace", 1e300),
        ("execution_timeout", timedelta(seconds=2)),
        ("retry_policy", "x"),
    ],
)
def test_r19_a_bad_parameter_is_named_at_parse(parameter: str, value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        TorchXTrainingOperator(**{**GOOD, parameter: value})
    assert caught.value.parameter == parameter


def test_no_message_quotes_what_may_be_a_secret() -> None:
    for wrong in ({"env": {"TOKEN": ["hunter2"]}}, {"env": "hunter2"}, {"cfg": ["hunter2"]}):
        with pytest.raises(ConfigurationError) as caught:
            TorchXTrainingOperator(**{**GOOD, **wrong})
        assert "hunter2" not in str(caught.value)


def test_what_trainers_get_as_text_may_be_anything_that_has_one() -> None:
    TorchXTrainingOperator(
        task_id="t",
        component_args=["--m", "pkg.train", "-j", 1, "--", Path("data"), 0.5, True],
        env={"EPOCHS": 3, "DATA": Path("/data")},
        resume=Path("/checkpoints/1"),
    )


def test_a_missing_script_is_named_at_parse() -> None:
    with pytest.raises(ConfigurationError, match=r"no script /nowhere/train\.py") as caught:
        TorchXTrainingOperator(task_id="t", component_args=["--script", "/nowhere/train.py"])
    assert caught.value.parameter == "component_args"


def test_templates_wait_for_the_run() -> None:
    TorchXTrainingOperator(
        **{**GOOD, "component": "{{ params.c }}", "scheduler": "{{ params.s }}"},
        resume="{{ params.r }}",
    )


def test_outputs_of_other_tasks_wait_for_the_run() -> None:
    with DAG("dag", params={"p": 1}) as dag:
        former: Any = TorchXTrainingOperator(**{**GOOD, "task_id": "former"}).output
        operator = TorchXTrainingOperator(
            task_id="t",
            component_args=["--m", "pkg.train", former["cursor"], dag.param("p")],
            env={"JOB": former["job"], "P": dag.param("p"), "T": "{{ ds }}"},
            cfg={"grace_s": "{{ params.g }}"},
            init_from=former["checkpoint"],
        )
        whole = TorchXTrainingOperator(
            task_id="w",
            component_args=former,
            scheduler=former["s"],
            env=former,
            cfg=former,
            resource=dag.param("p"),
        )
    assert operator.upstream_task_ids == whole.upstream_task_ids == {"former"}


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("component_args", "['--m', 'pkg.train']"),
        ("env", "{'A': 1}"),
        ("resume", "newest"),
        ("init_from", "newest"),
    ],
)
def test_what_a_template_gave_is_checked_at_the_run(
    context: dict[str, Any], parameter: str, value: str
) -> None:
    operator = TorchXTrainingOperator(**{**GOOD, parameter: "{{ params.p }}"})
    setattr(operator, parameter, value)
    with pytest.raises(ConfigurationError) as caught:
        operator._hold(context)
    assert caught.value.parameter == parameter


def test_lengths_of_time_may_be_timedeltas(context: dict[str, Any]) -> None:
    operator = TorchXTrainingOperator(**GOOD, poll_interval=timedelta(minutes=1))
    assert operator.poll_interval == 60.0


def test_defaults() -> None:
    operator = TorchXTrainingOperator(**GOOD)
    assert operator.deferrable is True
    assert isinstance(operator.retry_policy, ETTRetryPolicy)
    assert operator.multiple_outputs is True


def test_a_model_that_is_no_factory_is_named() -> None:
    with pytest.raises(ConfigurationError) as caught:
        ModelPublishOperator(task_id="p", checkpoint="/c", model="pkg.module", registry="/r")
    assert caught.value.parameter == "model"


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The context of a try that a user's clear began, on a run root of its own."""
    monkeypatch.setenv("AIRFLOW__ETT__RUN_ROOT", str(tmp_path / "runs"))
    ti = {"dag_id": "dag", "run_id": "run", "task_id": "train", "map_index": -1}
    return {"ti": SimpleNamespace(**ti, try_number=2, max_tries=2)}


def test_limits_are_instants_and_lengths_in_seconds(context: dict[str, Any]) -> None:
    operator = TorchXTrainingOperator(
        **GOOD,
        start_timeout=timedelta(minutes=2),
        unknown_grace=90,
        execution_timeout=timedelta(hours=1),
    )
    before_ns = time.time_ns()
    limits = Limits(**operator._hold(context).limits)
    assert (limits.start_timeout_s, limits.unknown_grace_s) == (120.0, 90.0)
    assert limits.deadline_ns is not None
    assert 3590e9 < limits.deadline_ns - before_ns < 3600e9
    plain = TorchXTrainingOperator(**GOOD)._hold(context)
    assert Limits(**plain.limits) == Limits()


def test_a_resources_terms_lie_between_the_connections_and_the_tasks_own(
    context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = {"partition": "h100", "account": "research", "gres": "gpu:h100:8"}
    option = {"h100.8": {"cpu": 96, "gpu": 8, "memMB": 900_000, "cfg": {"slurm": terms}}}
    monkeypatch.setenv("AIRFLOW__ETT__RESOURCES", json.dumps(option))
    monkeypatch.setenv("AIRFLOW__ETT__DEPLOYMENT", "test")
    extra = {"scheduler": "slurm", "cfg": {"account": "all", "partition": "cpu", "qos": "low"}}
    connection = Connection(conn_id="c", conn_type="torchx", extra=json.dumps(extra))
    monkeypatch.setattr(TorchXHook, "get_connection", classmethod(lambda cls, _id: connection))
    operator = TorchXTrainingOperator(
        **GOOD, torchx_conn_id="c", resource="{{ params.r }}", cfg={"account": "mine"}
    )
    operator.resource = "H100.8"  # rendered
    request = operator._hold(context).request
    laid = {"partition": "h100", "account": "mine", "qos": "low", "gres": "gpu:h100:8"}
    assert request["cfg"] == laid
    assert request["resource"] == {"cpu": 96, "gpu": 8, "memMB": 900_000}


def test_the_request_names_the_place_for_what_trainings_leave(
    context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__ETT__CACHE_ROOT", "s3://bucket/cache")
    request = TorchXTrainingOperator(**GOOD)._hold(context).request
    assert request["cache_root"] == "s3://bucket/cache"


def test_a_resource_that_nobody_knows_is_named_at_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__ETT__RESOURCES", '{"h100.8": {"gpu": 8}}')
    TorchXTrainingOperator(**GOOD, resource="h100.8")
    with pytest.raises(ConfigurationError, match=r"\[ett\] resources has h100\.8, and none is"):
        TorchXTrainingOperator(**GOOD, resource="h100.9")


class EndingScheduler:
    """Knows one app, which ends some looks after it was told to, and saves on its way down."""

    def __init__(self, run_dir: Path, looks: int) -> None:
        self.run_dir = run_dir
        self.looks = looks
        self.cancels = 0

    def status(self, handle: str) -> SchedulerStatus:
        self.looks -= 1
        if self.looks > 0:
            return SchedulerStatus("RUNNING")
        CursorFile(self.run_dir / "cursor").write(1, 0, 0, 0, 9, 0, 40, 77, *[0] * 7, 1)
        return SchedulerStatus("CANCELLED")

    def cancel(self, handle: str) -> None:
        self.cancels += 1


@pytest.fixture
def ending(context: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A job that a user's cancel has closed while its app is still saving."""
    key = JobKey("default", "dag", "run", "train")
    tries = {"try_number": 1, "max_tries": 0}
    job = open_job(Root(str(tmp_path / "runs")), key, checkpoint_root="", **tries)
    log: StorageLog = job.log
    claim = log.claim(**tries, mode="task")
    app = {"app": "a", "digest": "d", "layer": "first", "try": 1, "resume_cursor": 0}
    log.append("job_opened", {"scheduler": "local_detached"})
    log.intend(claim, 1, app)
    log.append("submitted", {"submission": 1, "handle": "local_detached://ett/a", **app})
    log.append("cancel_requested", {"submission": 1, "reason": "user_cancelled"})
    log.append("job_ended", {"state": JobState.CANCELLED, "cause": "user_cancelled"})
    scheduler = EndingScheduler(Path(log.place), looks=5)
    monkeypatch.setattr(gateway_module, "Gateway", lambda: scheduler)
    return scheduler


def test_a_clear_right_after_a_cancel_waits_for_the_app_that_is_still_saving(
    context: dict[str, Any], ending: EndingScheduler
) -> None:
    operator = TorchXTrainingOperator(**GOOD, poll_interval=0.01)
    hold = operator._hold(context)
    assert hold.key["generation"] == 2
    assert hold.inherit == {"checkpoint": None, "hwm": 77}
    assert ending.looks == 0
    assert ending.cancels == 1


def test_an_app_that_is_still_ending_is_looked_at_every_few_seconds(
    context: dict[str, Any], ending: EndingScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, pauses = TorchXTrainingOperator(**GOOD, poll_interval=1000), list[float]()
    monkeypatch.setattr(operator, "_pause", pauses.append)
    operator._hold(context)
    assert set(pauses) == {5.0}


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("running", AirflowRescheduleException),
        ("restarting", AirflowSkipException),
        ("scheduled", AirflowSkipException),
        ("up_for_retry", AirflowSkipException),
        ("failed", TrainingFailed),
    ],
)
def test_a_task_that_is_killed_while_it_waits_begins_nothing(
    context: dict[str, Any],
    ending: EndingScheduler,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    error: type[Exception],
) -> None:
    monkeypatch.setattr(module, "airflow_state", lambda key: state)
    operator = TorchXTrainingOperator(**GOOD, poll_interval=0.01)
    operator.on_kill()
    with pytest.raises(error):
        operator._hold(context)
    assert ending.looks == 4
    assert not (ending.run_dir.parent / "g2").exists()
