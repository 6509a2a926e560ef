"""The gateway: one contract for a real scheduler and for a scripted one, errors that name names."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from torchx.schedulers import DEFAULT_SCHEDULER_MODULES
from torchx.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler
from torchx.specs import AppDef, AppDryRunInfo, AppState, Role, runopts

from airflow_ett.errors import ConfigurationError, LaunchError
from airflow_ett.launch.gateway import Gateway, validate_static
from airflow_ett.launch.preparation import scheduler_factories
from airflow_ett.launch.schedulers.local_detached import LocalDetached
from airflow_ett.launch.status import SchedulerStatus

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


class Scripted(Scheduler[Mapping[str, Any]]):
    """Answers what a test tells it to; ids get a suffix as on Kubernetes."""

    def __init__(self, answers: list[Any]) -> None:
        super().__init__("scripted", "test")
        self.answers = answers
        self.submitted: list[str] = []
        self.cancelled: list[str] = []

    def _answer(self) -> Any:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _run_opts(self) -> runopts:
        options = runopts()
        options.add("queue", type_=str, help="the queue", required=True)
        return options

    def _validate(self, app: AppDef, scheduler: str, cfg: Mapping[str, Any]) -> None:
        pass

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, Any]) -> AppDryRunInfo[Any]:
        return AppDryRunInfo(app.name, str)

    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
        self._answer()
        self.submitted.append(f"ns:{dryrun_info.request}-x7k2")
        return self.submitted[-1]

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        state = self._answer()
        if state is None:
            return None
        return DescribeAppResponse(app_id=app_id, state=state, roles=[Role(name="r", image="")])

    def list(self, cfg: Mapping[str, Any] | None = None) -> list[ListAppResponse]:
        return [ListAppResponse(app_id=app, state=AppState.RUNNING) for app in self.submitted]

    def _cancel_existing(self, app_id: str) -> None:
        self.cancelled.append(app_id)

    def log_iter(self, app_id: str, role_name: str, k: int = 0, **_: Any) -> Iterator[str]:
        return iter([f"{role_name}/{k} one\n", "two\n", "three\n"])


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
def scripted() -> Callable[..., tuple[Gateway, Scripted]]:
    def make(*answers: Any) -> tuple[Gateway, Scripted]:
        scheduler = Scripted(list(answers))
        return Gateway({"scripted": lambda session, **_: scheduler}), scheduler

    return make


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


def test_a_name_submitted_twice_is_one_app(local: Gateway, component: str) -> None:
    """Field report R01."""
    prepared = local.prepare(component, ["echo once; sleep 1"], "local_detached")
    handles = [local.submit(prepared, "app") for _ in range(2)]
    assert handles[0] == handles[1]
    ended(local, handles[0])
    assert local.read_log(handles[0])[0] == "once\n"


def test_an_unfinished_start_is_not_found_but_finished(
    local: Gateway, component: str, tmp_path: Path
) -> None:
    """Field report R02."""
    (tmp_path / "apps" / "app").mkdir(parents=True)
    assert local.find("app", "local_detached") is None
    handle = local.submit(local.prepare(component, ["exit 0"], "local_detached"), "app")
    assert ended(local, handle).state == "SUCCEEDED"


def test_a_log_is_read_in_whole_lines_and_goes_on_anywhere(local: Gateway, component: str) -> None:
    script = "echo first; printf part; while ! [ -e go ]; do sleep 0.05; done; echo ial; printf end"
    folder = str(Path(component).parent)
    prepared = local.prepare(component, [script], "local_detached", cfg={"cwd": folder})
    handle = local.submit(prepared, "app")
    deadline = time.monotonic() + 10
    while not (first := local.read_log(handle))[0]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert first == ("first\n", 6)
    assert local.read_log(handle, 0, 6) == ("", 6)
    (Path(folder) / "go").touch()
    ended(local, handle)
    # Line by line at most: the unfinished line comes once the app is over and nothing follows.
    text, offset = local.read_log(handle, 0, 6)
    rest, end = local.read_log(handle, 0, offset)
    assert (text, rest, end) == ("partial\n", "end", 17)
    assert local.read_log(handle, 0, end) == ("", end)
    assert local.read_log(handle, replica=9) == ("", 0)


def test_a_cancel_reaches_the_app(local: Gateway, component: str) -> None:
    handle = local.submit(local.prepare(component, ["sleep 60"], "local_detached"), "app")
    local.cancel(handle)
    assert ended(local, handle).state == "CANCELLED"
    local.cancel(handle)


def test_an_unknown_app_has_no_state(local: Gateway) -> None:
    handle = "local_detached://ett/nothing"
    assert local.status(handle) == SchedulerStatus(state=None)
    assert local.read_log(handle) == ("", 0)
    assert local.last_lines(handle) == []
    assert local.log_location(handle) is None
    local.cancel(handle)


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


@pytest.mark.parametrize("state", [state.name for state in AppState])
def test_every_state_of_torchx_comes_through(
    scripted: Callable[..., tuple[Gateway, Scripted]], state: str
) -> None:
    """Field report R12."""
    gateway, _ = scripted(AppState[state])
    status = gateway.status("scripted://ett/app")
    assert (status.state, status.raw) == (state, state)
    assert status.terminal is (state in {"SUCCEEDED", "FAILED", "CANCELLED"})


def test_a_scheduler_that_forgets_flips_and_fails(
    scripted: Callable[..., tuple[Gateway, Scripted]],
) -> None:
    gateway, _ = scripted(AppState.FAILED, AppState.PENDING, None, OSError("no route"))
    handle = "scripted://ett/app"
    assert [gateway.status(handle).state for _ in range(3)] == ["FAILED", "PENDING", None]
    with pytest.raises(LaunchError, match=r"ask for scripted://ett/app: OSError: no route"):
        gateway.status(handle)


def test_another_scheduler_is_asked_through_torchx_alone(
    scripted: Callable[..., tuple[Gateway, Scripted]], component: str
) -> None:
    gateway, scheduler = scripted(AppState.RUNNING)
    prepared = gateway.prepare(component, ["exit 0"], "scripted", {"queue": "q"})
    handle = gateway.submit(prepared, "ett-app-1")
    assert gateway.find("ett-app-1", "scripted") == handle
    assert gateway.find("ett-app", "scripted") == handle
    assert gateway.find("ett-other", "scripted") is None
    text, offset = gateway.read_log(handle)
    assert text == "r/0 one\ntwo\nthree\n"
    assert gateway.read_log(handle, 0, offset) == ("", offset)
    assert gateway.read_log(handle, 1, 2) == ("three\n", 3)
    assert gateway.last_lines(handle, count=1) == ["three"]
    gateway.cancel(handle)
    assert scheduler.cancelled == scheduler.submitted


def test_a_refused_submit_is_a_launch_error(
    scripted: Callable[..., tuple[Gateway, Scripted]], component: str
) -> None:
    gateway, _ = scripted(PermissionError("quota"))
    prepared = gateway.prepare(component, ["exit 0"], "scripted", {"queue": "q"})
    with pytest.raises(LaunchError, match=r"submit app to scripted: PermissionError: quota"):
        gateway.submit(prepared, "app")


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


def test_a_missing_option_of_another_scheduler_is_named(
    scripted: Callable[..., tuple[Gateway, Scripted]], component: str
) -> None:
    gateway, _ = scripted(None)
    with pytest.raises(ConfigurationError, match="queue") as raised:
        gateway.prepare(component, ["exit 0"], "scripted")
    assert raised.value.parameter == "cfg"


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
