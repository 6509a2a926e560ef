"""The gateway: what it refuses, and what it makes of a scheduler's words.

What holds on every scheduler is in ``contract/test_contract.py``.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torchx.schedulers import DEFAULT_SCHEDULER_MODULES
from torchx.specs import AppState

from airflow_ett.errors import ConfigurationError, LaunchError
from airflow_ett.launch.gateway import Gateway, validate_static
from airflow_ett.launch.preparation import scheduler_factories
from airflow_ett.launch.schedulers.local_detached import LocalDetached
from airflow_ett.launch.status import SchedulerStatus
from tests.launch.contract.scripted import Answer, DetailedScripted, Scripted

COMPONENT = """
from torchx.specs import AppDef, Resource, Role

def sh(*scripts: str, gpu: int = 0) -> AppDef:
    return AppDef(
        name="x",
        roles=[
            Role(
                name=f"r{i}", image="", entrypoint="/bin/sh", args=["-c", script],
                resource=Resource(1, gpu, 1),
            )
            for i, script in enumerate(scripts)
        ],
    )

def broken(x: str = "") -> AppDef:
    raise RuntimeError("no luck")

def unannotated(x):
    return None
"""


@pytest.fixture
def component(tmp_path: Path) -> str:
    path = tmp_path / "my_component.py"
    path.write_text(COMPONENT)
    return f"{path}:sh"


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Gateway]:
    scheduler = LocalDetached("test", tmp_path / "apps")
    yield Gateway({"local_detached": lambda session, **_: scheduler})
    for app in scheduler.list():
        scheduler.cancel(app.app_id)


@pytest.fixture
def scripted(tmp_path: Path) -> Scripted:
    return Scripted(tmp_path / "scripted")


def gateway_of(scheduler: Scripted) -> Gateway:
    return Gateway({"scripted": lambda session, **_: scheduler})


def submitted(scheduler: Scripted, *life: Answer) -> tuple[Gateway, str]:
    """Submit an app with this life; return its gateway and handle."""
    gateway = gateway_of(scheduler)
    scheduler.lives = [life]
    prepared = gateway.prepare("utils.echo", [], "scripted", {"queue": "q"})
    return gateway, gateway.submit(prepared, "app")


def ended(gateway: Gateway, handle: str) -> SchedulerStatus:
    deadline = time.monotonic() + 15
    while not (status := gateway.status(handle)).terminal:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return status


def test_an_app_goes_through_its_life(local: Gateway, component: str) -> None:
    arguments = ["echo $$VALUE; exit 5"]
    prepared = local.prepare(component, arguments, "local_detached", env={"VALUE": "seen"})
    assert local.find("app", "local_detached") is None
    handle = local.submit(prepared, "app")
    assert handle == "local_detached://ett/app"
    assert local.find("app", "local_detached") == handle
    status = ended(local, handle)
    assert (status.state, status.restart, status.replicas[0].exit_code) == ("FAILED", 0, 5)
    assert local.read_log(handle) == ("seen\n", 5)
    assert local.last_lines(handle) == ["seen"]
    assert Path(str(local.log_location(handle))).read_text() == "seen\n"


def test_an_unfinished_start_is_not_found_but_finished(
    local: Gateway, component: str, tmp_path: Path
) -> None:
    """Field report R02."""
    (tmp_path / "apps" / "app").mkdir(parents=True)
    assert local.find("app", "local_detached") is None
    handle = local.submit(local.prepare(component, ["exit 0"], "local_detached"), "app")
    assert ended(local, handle).state == "SUCCEEDED"


def test_a_handle_that_is_none_is_a_launch_error(local: Gateway) -> None:
    with pytest.raises(LaunchError, match="read the handle 'nonsense'"):
        local.status("nonsense")


def test_prepared_apps_are_not_changed_by_submitting(local: Gateway, component: str) -> None:
    prepared = local.prepare(component, ["exit 0"], "local_detached")
    before = repr(prepared)
    for name in ("a", "b"):
        ended(local, local.submit(prepared, name))
    assert repr(prepared) == before


def test_accelerators_of_the_whole_app(local: Gateway, component: str) -> None:
    def count(**resource: Any) -> int:
        prepared = local.prepare(component, ["a", "b"], "local_detached", **resource)
        return local.accelerators(prepared)

    assert count() == 0
    assert count(resource={"gpu": 8}) == 16
    assert count(resource="aws_p4d.24xlarge") == 16


@pytest.mark.parametrize("state", AppState)
def test_r12_every_state_of_torchx_comes_through(scripted: Scripted, state: AppState) -> None:
    gateway, handle = submitted(scripted, state)
    status = gateway.status(handle)
    assert (status.state, status.raw) == (state.name, state.name)
    assert status.terminal is (state.name in {"SUCCEEDED", "FAILED", "CANCELLED"})
    # TorchX does not tell a failure from a preemption whose requeue is about to come.
    assert status.may_return is (state is AppState.FAILED)


def test_a_scheduler_that_forgets_flips_and_fails(scripted: Scripted) -> None:
    life = (AppState.FAILED, AppState.PENDING, None, OSError("no route"))
    gateway, handle = submitted(scripted, *life)
    assert [gateway.status(handle).state for _ in range(3)] == ["FAILED", "PENDING", None]
    with pytest.raises(LaunchError, match=r"ask for scripted://ett/app: OSError: no route"):
        gateway.status(handle)


def test_an_app_that_may_return_is_told_to_end_all_the_same(scripted: Scripted) -> None:
    gateway, handle = submitted(scripted, AppState.FAILED, AppState.PENDING)
    gateway.cancel(handle)
    assert scripted.cancelled == ["app"]
    assert gateway.status(handle).state == "CANCELLED"


def test_a_cancel_that_an_ended_app_refuses_is_none_that_was_missed(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(app_id: str) -> None:
        raise OSError("Invalid job id specified")

    monkeypatch.setattr(scripted, "_cancel_existing", refuse)
    gateway, handle = submitted(scripted, AppState.FAILED)
    gateway.cancel(handle)
    scripted.live_on("app", AppState.RUNNING)
    with pytest.raises(LaunchError, match=r"cancel scripted://ett/app: OSError: Invalid job id"):
        gateway.cancel(handle)


@pytest.mark.parametrize("kind", [Scripted, DetailedScripted])
def test_s13_a_look_at_a_job_asks_a_slow_scheduler_once(
    tmp_path: Path, kind: type[Scripted]
) -> None:
    scheduler = kind(tmp_path / "scripted")
    gateway, handle = submitted(scheduler, AppState.RUNNING)
    for _ in range(2):
        before = scheduler.asked
        gateway.status(handle)
        gateway.read_log(handle)
        gateway.last_lines(handle)
        gateway.page(handle)
        gateway.log_location(handle)
        assert scheduler.asked - before == 1
    gateway.log_location("scripted://ett/other")
    assert scheduler.asked - before == 2


def test_a_refused_submit_is_a_launch_error(scripted: Scripted) -> None:
    scripted.refusal = PermissionError("quota")
    with pytest.raises(LaunchError, match=r"submit app to scripted: PermissionError: quota"):
        submitted(scripted, AppState.RUNNING)


@pytest.mark.parametrize(
    ("parameter", "request_"),
    [
        ("scheduler", {"scheduler": "slurmm"}),
        ("scheduler", {"scheduler": "local_cwd"}),
        ("component", {"component": "no.such"}),
        ("component", {"component": "nothing"}),
        ("component", {"component": "/no/such/file.py:fn"}),
        ("component", {"component": "{folder}/my_component.py:missing"}),
        ("component", {"component": "{folder}/my_component.py:unannotated"}),
        ("component", {"component": "airflow_ett.launch.components:missing"}),
        ("component_args", {"component": "{folder}/my_component.py:broken"}),
        ("component_args", {"component": "train", "component_args": ["--j", "1x1"]}),
        ("component_args", {"component": "train", "component_args": ["--nope", "1"]}),
        ("component_args", {"component": "train", "component_args": {"nope": 1}}),
        ("component_args", {"component": "train", "component_args": {"script": "a", "cpu": "x"}}),
        ("component_args", {"component": "train", "component_args": {"script": "a", "j": "1:2x2"}}),
        ("component_args", {"component": "train", "component_args": ["--help"]}),
        ("cfg", {"cfg": {"graces": 1}}),
        ("cfg", {"cfg": {"grace_s": "soon"}}),
        ("cfg", {"cfg": {"cwd": "/no/such/folder"}}),
        ("component_args", {"component": "train", "component_args": ["--script", "no/such.py"]}),
        ("resource", {"resource": "no.such.host"}),
        ("resource", {"resource": {"gpus": 1}}),
        ("resource", {"resource": {"gpu": "8"}}),
        ("workspace", {"workspace": "/tmp"}),
    ],
)
def test_a_wrong_parameter_is_named(
    local: Gateway, component: str, parameter: str, request_: dict[str, Any]
) -> None:
    request = {"component": component, "component_args": ["exit 0"], "scheduler": "local_detached"}
    if "component" in request_:
        request["component_args"] = []
        folder = str(Path(component).parent)
        request_ = request_ | {"component": request_["component"].replace("{folder}", folder)}
    with pytest.raises(ConfigurationError) as raised:
        local.prepare(**{**request, **request_})
    assert raised.value.parameter == parameter
    assert raised.value.problem


def test_a_missing_option_of_another_scheduler_is_named(scripted: Scripted, component: str) -> None:
    with pytest.raises(ConfigurationError, match="queue") as raised:
        gateway_of(scripted).prepare(component, ["exit 0"], "scripted")
    assert raised.value.parameter == "cfg"


def test_an_unknown_option_is_named_and_no_others_value(scripted: Scripted) -> None:
    with pytest.raises(ConfigurationError, match="Unknown run option `quue`") as raised:
        gateway_of(scripted).check("scripted", {"queue": "hunter2", "quue": "q"})
    assert "hunter2" not in str(raised.value)
    assert raised.value.__suppress_context__


@pytest.mark.parametrize(
    ("parameter", "arguments"),
    [
        ("scheduler", {"scheduler": "slurmm"}),
        ("component", {"component": "nothing"}),
        ("component", {"component": "dist.no_such"}),
        ("component", {"component": "no_such_package.module:fn"}),
        ("component", {"component": "/no/such/file.py:fn"}),
        ("component", {"component": "file.py"}),
        ("cfg", {"cfg": {"nope": 1}}),
        ("cfg", {"scheduler": "slurm", "cfg": {"partitoin": "gpu"}}),
        ("resource", {"resource": "no.such.host"}),
        ("component_args", {"component_args": ["--script", "/no/such.py", "--", "--script", "x"]}),
        ("component_args", {"component_args": ["--script=/no/such.py"]}),
        ("component_args", {"component_args": {"script": "/no/such.py"}}),
    ],
)
def test_what_a_dag_file_tells_is_checked_at_parse(
    parameter: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        validate_static(**{"component": "train", "scheduler": "local_detached", **arguments})
    assert raised.value.parameter == parameter


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"scheduler": "{{ var.value.scheduler }}"},
        {"component": "{{ params.component }}"},
        {"component": "dist.torchrun", "scheduler": "slurm", "cfg": {"partition": "gpu"}},
        {"component": "relative/file.py:fn"},
        {"component": "torchx.components.utils:echo"},
        {"component_args": ["--script", "{{ params.script }}"]},
        {"component_args": ["-m", "x", "--", "--script", "/no/such.py"]},
        {"scheduler": "kubernetes", "component_args": ["--script", "/app/train.py"]},
        {"resource": {"gpu": 8}},
    ],
)
def test_what_cannot_be_known_at_parse_passes(arguments: dict[str, Any]) -> None:
    validate_static(**{"component": "train", "scheduler": "local_detached", **arguments})


def test_schedulers_are_discovered_and_local_cwd_is_left_out() -> None:
    factories = scheduler_factories()
    assert set(factories) >= (set(DEFAULT_SCHEDULER_MODULES) - {"local_cwd"}) | {"local_detached"}
    assert "local_cwd" not in factories


def test_nothing_heavy_is_imported_and_no_signal_handler_changes() -> None:
    code = (
        "import signal, sys\n"
        "numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGCHLD]\n"
        "before = [signal.getsignal(n) for n in numbers]\n"
        "from airflow_ett.launch.gateway import Gateway, validate_static\n"
        "validate_static('train', 'slurm')\n"
        "Gateway().prepare('utils.echo', [], 'local_detached')\n"
        "assert before == [signal.getsignal(n) for n in numbers]\n"
        "heavy = {'torch', 'airflow', 'kubernetes', 'docker', 'torchx.schedulers.local_scheduler'}"
        "\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
