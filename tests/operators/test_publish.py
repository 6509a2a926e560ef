"""The publishing task: what it runs, what it hands on, what it says when that fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRescheduleException, AirflowSkipException

import airflow_ett.operators.stopping as stopping
from airflow_ett.errors import ConfigurationError, EndedByUser, PublishError
from airflow_ett.events import JobKey, Kind, RunDir, read_log
from airflow_ett.operators import model_asset
from airflow_ett.operators.publishing.child import arguments
from airflow_ett.publish.__main__ import _parser
from airflow_ett.publish.request import Request
from airflow_ett.store import upgrade
from tests.api.server import SECRET, serving
from tests.operators.publishing import (
    RESULT,
    context,
    execute,
    published_events,
    says,
    script,
    task,
)

OUTPUT = {name: RESULT[name] for name in ("version", "uri", "digest")}


@pytest.fixture(autouse=True)
def own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__ETT__SQL_ALCHEMY_CONN", f"sqlite:///{tmp_path}/none.db")


def test_it_hands_on_the_result_and_tells_the_trainings_log(
    tmp_path: Path, write_job: Callable[..., RunDir]
) -> None:
    run = write_job(tmp_path / "runs")
    job = read_log(next(iter(run.logs()))).events[0].job
    python = script(tmp_path, f'echo "$@" > {tmp_path}/argv', "echo working", says())
    output = {"checkpoint": "/c/2000", "run_dir": str(run.path), "job": job, "handle": "x://a"}
    assert execute(task(checkpoint=output, python=python)) == OUTPUT
    argv = (tmp_path / "argv").read_text()
    flags = "--checkpoint=/c/2000 --model=pkg.m:build --registry=/r --name=m"
    assert f"-m airflow_ett.publish {flags}" in argv
    assert f'"job": "{job}"' in argv
    (published,) = published_events(run)
    assert published.job == job
    told = {"checkpoint": "/c/2000", "begin": 5, "end": 9, "name": "m", "registry": "/r"}
    assert told.items() <= published.data.items()
    assert (published.data["bytes"], published.data["existed"]) == (7, False)


def test_the_publisher_understands_what_it_is_asked() -> None:
    asked = Request(
        checkpoint="/c",
        model="pkg.m:build",
        registry="-odd place",
        name="m",
        version="v1",
        transforms=("bfloat16", "export"),
        golden="pkg.m:batch",
        tolerance=1e-05,
        force_latest=True,
        training={"job": "j, 'quoted'"},
    )
    plain = Request(checkpoint="/c", model="pkg.m:build", registry="/r", name="m")
    for request in (asked, plain):
        assert Request(**vars(_parser().parse_args(arguments(request)))) == request


@pytest.mark.parametrize("task_id", ["publish", "veröffentlichen", "p" * 250])
def test_a_training_at_the_api_is_told_whatever_the_task_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task_id: str
) -> None:
    url = f"sqlite:///{tmp_path}/ett.db"
    upgrade(url)
    monkeypatch.setenv("AIRFLOW__ETT__API_SECRET", SECRET)
    with serving(url) as api:
        monkeypatch.setenv("AIRFLOW__ETT__API_URL", api.url)
        job = JobKey("default", "dag", "run", "train").id
        output = {"checkpoint": "/c/2000", "run_dir": api.place(job), "job": job}
        python = script(tmp_path, says())
        operator = task(task_id=task_id, checkpoint=output, python=python)
        execute(operator, context(task_id=task_id))
        (published,) = api.storage(job).events("launcher")
    assert (published.kind, published.data["version"]) == (Kind.PUBLISHED, "2000-ab")


def test_a_plain_uri_is_enough(tmp_path: Path) -> None:
    assert execute(task(python=script(tmp_path, says(), "echo bye"))) == OUTPUT


def test_the_models_asset_says_what_was_published(tmp_path: Path) -> None:
    operator, given = task(python=script(tmp_path, says())), context()
    assert operator.outlets == [model_asset("m")]
    execute(operator, given)
    extra = {**OUTPUT, "cursor": 2000}
    assert {asset: event.extra for asset, event in given["outlet_events"].items()} == {
        model_asset("m"): extra
    }


@pytest.mark.parametrize(("name", "outlets"), [("{{ params.name }}", None), ("m", [])])
def test_no_asset_where_nobody_knows_its_name_or_none_is_wanted(name: str, outlets: Any) -> None:
    given = {} if outlets is None else {"outlets": outlets}
    assert task(name=name, **given).outlets == []


def test_a_publisher_that_fails_is_quoted(tmp_path: Path) -> None:
    python = script(tmp_path, "echo 'not published: shard 3 is damaged' >&2; exit 1")
    with pytest.raises(PublishError, match=r"exit code 1.*shard 3 is damaged"):
        execute(task(python=python))


def test_a_publisher_that_dies_without_a_result_is_no_success(tmp_path: Path) -> None:
    with pytest.raises(PublishError, match="told no result"):
        execute(task(python=script(tmp_path, "echo working")))


@pytest.mark.parametrize("checkpoint", ["", {}, {"checkpoint": None}])
def test_no_checkpoint_is_named(checkpoint: Any) -> None:
    operator = task(checkpoint="{{ x }}", python=os.devnull)
    operator.checkpoint = checkpoint
    with pytest.raises(ConfigurationError) as caught:
        execute(operator)
    assert caught.value.parameter == "checkpoint"


@pytest.mark.parametrize(
    ("state", "raised"),
    [
        ("failed", EndedByUser),
        ("success", AirflowSkipException),
        ("restarting", AirflowSkipException),
        ("running", AirflowRescheduleException),
    ],
)
def test_a_kill_ends_the_publisher_and_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, raised: type[Exception]
) -> None:
    monkeypatch.setattr(stopping, "airflow_state", lambda key: state)
    # The second process keeps the output open, as the one that tries a snapshot does.
    python = script(tmp_path, f"sleep 60 & echo $! > {tmp_path}/pid; wait")
    operator = task(python=python)
    pid = tmp_path / "pid"

    def kill() -> None:
        while not (pid.exists() and pid.read_text().strip()):
            time.sleep(0.01)
        operator.on_kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(raised):
        execute(operator)
    killer.join()
    assert _ends(pid)


def test_a_kill_may_come_in_a_signal_handler_while_the_publishers_end_is_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "airflow_state", lambda key: "failed")
    # Its output is closed, so that the task waits for nothing but its end.
    python = script(tmp_path, f"exec >&- 2>&-; echo $$ > {tmp_path}/pid; exec sleep 60")
    operator = task(python=python)
    before = signal.signal(signal.SIGALRM, lambda *_: operator.on_kill())
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(EndedByUser):
            execute(operator)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert _ends(tmp_path / "pid")


def test_a_task_that_takes_too_long_takes_its_publisher_along(tmp_path: Path) -> None:
    operator = task(python=script(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 60"))

    def alarm(*_: Any) -> None:
        raise TimeoutError("as execution_timeout does")

    before = signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(TimeoutError):
            execute(operator)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert _ends(tmp_path / "pid")


def test_the_operator_needs_no_torch_to_be_parsed() -> None:
    code = (
        "import json, sys; from airflow_ett.operators import ModelPublishOperator as P;"
        "P(task_id='p', checkpoint='/c', model='m:f', registry='/r', transforms=['int8']);"
        "print(json.dumps([m for m in ('torch', 'safetensors') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == []


def _ends(noted: Path) -> bool:
    """Say whether the process whose id is noted there ends in seconds; a signal takes a moment."""
    stat = Path(f"/proc/{int(noted.read_text())}/stat")
    limit = time.monotonic() + 5
    while time.monotonic() < limit:
        try:
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False
