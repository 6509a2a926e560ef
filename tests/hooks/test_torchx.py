"""The ``torchx`` connection: what it gives, and what its test button says."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Connection
from airflow.sdk._shared.secrets_masker import reset_secrets_masker

from airflow_ett.errors import ConfigurationError
from airflow_ett.hooks.torchx import TorchXHook
from airflow_ett.provider import get_provider_info
from airflow_ett.store import upgrade
from tests.api.server import SECRET, serving

Connect = Callable[..., None]


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Connect:
    """Make the connection ``gpu`` of these extra fields."""
    monkeypatch.setenv("AIRFLOW__ETT__RUN_ROOT", str(tmp_path / "runs"))
    monkeypatch.setenv("AIRFLOW__ETT__LOCAL_STATE_DIR", str(tmp_path / "local"))

    def make(**extra: Any) -> None:
        connection = Connection(conn_id="gpu", conn_type="torchx", extra=json.dumps(extra))
        monkeypatch.setattr(TorchXHook, "get_connection", classmethod(lambda cls, _id: connection))

    return make


def test_without_a_connection_the_options_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__ETT__CHECKPOINT_ROOT", "/checkpoints")
    hook = TorchXHook()
    assert hook.scheduler == "local_detached"
    assert hook.cfg == {}
    assert hook.checkpoint_root == "/checkpoints"


@pytest.mark.parametrize("cfg", [{"partition": "gpu"}, '{"partition": "gpu"}'])
def test_a_connection_gives_scheduler_cfg_and_checkpoint_root(connect: Connect, cfg: Any) -> None:
    connect(scheduler="slurm", cfg=cfg, checkpoint_root="/fast")
    hook = TorchXHook("gpu")
    assert (hook.scheduler, hook.cfg) == ("slurm", {"partition": "gpu"})
    assert hook.checkpoint_root == "/fast"


def test_fields_left_empty_in_the_form_are_as_good_as_absent(connect: Connect) -> None:
    connect(scheduler="", cfg=None, checkpoint_root=None)
    hook = TorchXHook("gpu")
    assert (hook.scheduler, hook.cfg, hook.checkpoint_root) == ("local_detached", {}, "")


@pytest.mark.parametrize("cfg", [["partition"], "partition=gpu", "[1]", 3])
def test_a_cfg_that_is_no_object_is_named(connect: Connect, cfg: Any) -> None:
    connect(cfg=cfg)
    with pytest.raises(ConfigurationError, match="cfg of 'gpu'") as caught:
        TorchXHook("gpu")
    assert caught.value.parameter == "torchx_conn_id"


def test_the_form_has_what_the_hook_reads() -> None:
    read: set[str] = set()

    class Extra(dict[str, Any]):
        def get(self, name: str, default: Any = None) -> Any:
            read.add(name)
            return super().get(name, default)

    hook = TorchXHook()
    hook._extra = Extra()
    assert hook.scheduler
    assert hook.checkpoint_root == ""
    (form,) = get_provider_info()["connection-types"]
    assert set(form["conn-fields"]) == read | {"cfg"}


def test_the_button_approves_and_submits_nothing(connect: Connect, tmp_path: Path) -> None:
    connect(cfg={"grace_s": 5}, checkpoint_root=str(tmp_path / "checkpoints"))
    ok, text = TorchXHook("gpu").test_connection()
    assert text == (
        "local_detached answers and knows these options; job logs go to "
        f"{tmp_path}/runs, checkpoints to {tmp_path}/checkpoints (tested on {socket.gethostname()})"
    )
    assert ok
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("{folder}/file/cache", "{folder}/file/cache cannot be written, nor made"),
        ("nowhere://bucket/cache", "Protocol not known: nowhere"),
    ],
)
def test_the_button_names_a_cache_root_that_cannot_be_used(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str, problem: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("AIRFLOW__ETT__CACHE_ROOT", place.format(folder=tmp_path))
    connect()
    ok, text = TorchXHook("gpu").test_connection()
    assert not ok
    assert text.startswith("[ett] cache_root: ")
    assert problem.format(folder=tmp_path) in text


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"scheduler": "slrum"}, "scheduler: there is no 'slrum'; installed: "),
        ({"scheduler": "local_cwd"}, "use local_detached instead"),
        ({"cfg": {"grace_s": "long"}}, "cfg: "),
        (
            {"checkpoint_root": "nowhere://bucket"},
            "checkpoint_root: 'nowhere://bucket': Protocol not known",
        ),
        ({"checkpoint_root": "checkpoints"}, "checkpoint_root: 'checkpoints' must be an absolute"),
    ],
)
def test_the_button_names_what_is_wrong(connect: Connect, extra: Any, words: str) -> None:
    connect(**extra)
    ok, text = TorchXHook("gpu").test_connection()
    assert words in text
    assert not ok


def test_the_button_names_a_folder_that_cannot_be_made(connect: Connect, tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    connect()
    ok, text = TorchXHook("gpu").test_connection()
    assert f"[ett] run_root: {tmp_path}/runs cannot be written" in text
    assert not ok


def test_the_button_says_when_the_scheduler_does_not_answer(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connect(scheduler="slurm")
    monkeypatch.setenv("AIRFLOW__ETT__DEPLOYMENT", "test")
    monkeypatch.setenv("AIRFLOW__ETT__SLURM_STATE_DIR", str(tmp_path / "slurm"))
    monkeypatch.setenv("PATH", str(tmp_path))
    ok, text = TorchXHook("gpu").test_connection()
    assert "there is no squeue on this machine's PATH" in text
    assert not ok


def test_the_button_tells_no_secret(connect: Connect) -> None:
    cfg: Mapping[str, Any] = {"api_token": "hunter2hunter2", "grace_s": "hunter2hunter2"}
    connect(cfg=cfg)
    try:
        ok, text = TorchXHook("gpu").test_connection()
    finally:
        reset_secrets_masker()
    assert "cfg: " in text
    assert "hunter2" not in text
    assert not ok


@pytest.mark.parametrize(
    ("scheduler", "deployment", "refused"),
    [
        ("slurm", None, True),
        ("slurm", "default", True),
        ("slurm", "production", False),
        ("local_detached", None, False),
        ("local_docker", None, False),
    ],
)
def test_an_airflow_that_trains_on_a_cluster_must_have_a_name(
    monkeypatch: pytest.MonkeyPatch, scheduler: str, deployment: str | None, refused: bool
) -> None:
    if deployment:
        monkeypatch.setenv("AIRFLOW__ETT__DEPLOYMENT", deployment)
    hook = TorchXHook()
    if not refused:
        hook.check_deployment(scheduler)
        return
    with pytest.raises(ConfigurationError, match="name this Airflow") as caught:
        hook.check_deployment(scheduler)
    assert caught.value.parameter == "[ett] deployment"


def test_the_button_asks_the_api_for_a_log(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(checkpoint_root=str(tmp_path / "checkpoints"))
    url = f"sqlite:///{tmp_path}/ett.db"
    upgrade(url)
    monkeypatch.setattr("airflow_ett.launch.root._PATIENCE_S", 0.1)
    monkeypatch.setenv("AIRFLOW__ETT__API_SECRET", SECRET)
    with serving(url) as api:
        monkeypatch.setenv("AIRFLOW__ETT__API_URL", api.url)
        ok, text = TorchXHook("gpu").test_connection()
        assert f"job logs go to {api.base}, checkpoints to {tmp_path}/checkpoints" in text
        assert ok
        monkeypatch.setenv("AIRFLOW__ETT__API_SECRET", "another-secret-of-32-characters-or-so")
        ok, text = TorchXHook("gpu").test_connection()
        assert "[ett] api_secret" in text
        assert not ok
    ok, text = TorchXHook("gpu").test_connection()
    assert "Check [ett] api_url" in text
    assert not ok
