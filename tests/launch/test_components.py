"""Our component: the command that a node runs, as TorchX makes it of an operator's arguments."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from torchx.specs import AppDef, Role
from torchx.specs.finder import get_component

from airflow_ett.launch.components import train
from airflow_ett.launch.preparation import build_app
from airflow_ett.launch.schedulers.local_detached import GRACE_KEY, create_scheduler

AGENT = ["-m", "airflow_ett.trainer.agent"]


def only_role(app: AppDef) -> Role:
    (role,) = app.roles
    return role


def test_one_node_runs_the_agent_without_a_shell() -> None:
    app = build_app(
        "train", ["-j", "1x4", "--script", "a b.py", "--grace_s", "7", "--", "--lr", "1"]
    )
    role = only_role(app)
    assert (app.name, role.name, role.num_replicas) == ("a b", "trainer", 1)
    assert role.entrypoint == "python"
    assert role.args == [
        *AGENT,
        *["--nproc", "4", "--grace", "7", "--script", "a b.py", "--", "--lr", "1"],
    ]


def test_a_module_and_a_bare_number_of_processes() -> None:
    role = only_role(train(m="pkg.main", j="3"))
    assert role.args[2:] == ["--nproc", "3", "--grace", "30", "--module", "pkg.main", "--"]


def test_resources_environment_and_names_arrive() -> None:
    app = build_app(
        "train",
        {
            "script": "t.py",
            "name": "exp/run7",
            "j": "2x8",
            "gpu": "8",
            "cpu": 96,
            "env": {"A": "x,y=z"},
            "script_args": ["--epochs", 3],
        },
    )
    role = only_role(app)
    assert (app.name, role.num_replicas, role.resource.gpu, role.resource.cpu) == ("run7", 2, 8, 96)
    assert role.env == {"A": "x,y=z"}
    assert role.args[1].endswith("-- --epochs 3")


def test_a_named_host_gives_the_processes_per_node() -> None:
    role = only_role(train(script="t.py", h="aws_p4d.24xlarge", j="2"))
    assert role.num_replicas == 2
    assert "--nproc 8 " in role.args[1]


def test_the_scheduler_grants_the_trainers_grace_and_some_more() -> None:
    assert only_role(train(script="t.py", grace_s=60)).metadata[GRACE_KEY] > 60


def test_what_a_hang_leads_to_is_the_agents_business() -> None:
    assert only_role(train(script="t.py", on_hang="end")).args[2:8] == [
        *["--nproc", "1", "--grace", "30", "--on-hang", "end"]
    ]
    with pytest.raises(ValueError, match="on_hang: 'restart' is neither record nor end"):
        train(script="t.py", on_hang="restart")


@pytest.mark.parametrize("j", ["1:2x4", "0x2", "2x", "x", "", "2x0", "-1x2"])
def test_a_shape_that_the_agent_cannot_have_is_refused(j: str) -> None:
    with pytest.raises(ValueError, match="j: "):
        train(script="t.py", j=j)


def test_every_node_learns_its_rank_and_the_first_ones_address(tmp_path: Path) -> None:
    shown = tmp_path / "python"
    shown.write_text('#!/bin/sh\nfor a in "$@"; do printf "%s\\n" "$a"; done\n')
    shown.chmod(0o755)
    app = build_app(
        "train", ["-j", "2x1", "--script", "it's.py", "--rdzv_port", "1234", "--", "a b"]
    )
    app.name = "app"
    app.roles[0].env["PATH"] = f"{tmp_path}:/bin:/usr/bin"
    scheduler = create_scheduler("test", state_dir=tmp_path / "apps")
    scheduler.schedule(scheduler.submit_dryrun(app, {}))
    output: dict[int, list[str]] = {}
    for node in (0, 1):
        lines = scheduler.log_iter("app", "trainer", node, should_tail=True)
        output[node] = [line.rstrip("\n") for line in lines]
    for node in (0, 1):
        assert output[node] == [
            *AGENT,
            *["--nproc", "1", "--grace", "30", "--nnodes", "2", "--node-rank", str(node)],
            *["--master-port", "1234", "--master-addr", "localhost"],
            *["--script", "it's.py", "--", "a b"],
        ]


def test_torchx_itself_finds_the_component_and_has_no_complaint() -> None:
    component: Any = get_component("airflow_ett.launch.components:train")
    assert component.validation_errors == []
    assert sys.modules[component.fn.__module__].__name__ == "airflow_ett.launch.components"
