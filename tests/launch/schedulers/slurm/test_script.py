"""The scripts of an app, run by a real shell: what arrives at the trainer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torchx.specs import Resource, Role, macros

from airflow_ett.errors import LaunchError
from airflow_ett.launch.schedulers.slurm.folder import Folder
from airflow_ett.launch.schedulers.slurm.script import batch_script, task_script

TELL = "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:], os.getcwd()]))"
NASTY = {
    "COMMAS": "a,b=c,,d",
    "QUOTES": "\"double\" 'single' `back` \\ $HOME $(id) !",
    "LINES": "\nfirst\n\tsecond\r\n\n",
    "UNICODE": "größer ☃ \x01\x7f",
    "EMPTY": "",
}


def role(*args: str, env: dict[str, str] | None = None, **more: Any) -> Role:
    return Role("r", "", entrypoint=sys.executable, args=["-c", TELL, *args], env=env or {}, **more)


def run(script: str, **environ: str) -> tuple[dict[str, str], list[str], str]:
    """Run a task's script as Slurm does on a node."""
    done = subprocess.run(
        ("bash", "-c", script),
        env={"PATH": os.environ["PATH"], "SLURM_PROCID": "0", **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    env, argv, cwd = json.loads(done.stdout)
    return env, argv, cwd


def test_variables_and_arguments_arrive_whole(tmp_path: Path) -> None:
    values = list(NASTY.values())
    env, argv, cwd = run(task_script("app", role(*values, env=NASTY), str(tmp_path), None))
    assert {name: env[name] for name in NASTY} == NASTY
    assert argv == values
    assert cwd == str(tmp_path)


@settings(max_examples=25, deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0$"), max_size=80))
def test_any_text_arrives_whole(text: str) -> None:
    env, argv, _ = run(task_script("app", role(text, env={"TEXT": text}), "/", None))
    assert (env["TEXT"], argv) == (text, [text])


def test_a_variable_without_a_shells_name_and_a_nul_are_refused() -> None:
    with pytest.raises(LaunchError, match=r"app x cannot have a variable 'a-b'.*Rename it"):
        task_script("x", role(env={"a-b": "1"}), "/", None)
    with pytest.raises(LaunchError, match="app x: NUL"):
        task_script("x", role(env={"A": "1\0"}), "/", None)


def test_each_node_has_its_own_number_and_the_first_ones_address() -> None:
    wanted = role(
        f"{macros.replica_id}", f"--rank={macros.replica_id} of it", macros.app_id, macros.rank0_env
    )
    wanted.env["NODE"] = f"n {macros.replica_id}"
    env, argv, _ = run(task_script("app-1", wanted, "/", None), SLURM_PROCID="3")
    assert argv == ["3", "--rank=3 of it", "app-1", "TORCHX_RANK0_HOST"]
    assert env["NODE"] == "n 3"


def test_of_several_nodes_the_one_that_fails_says_so(tmp_path: Path) -> None:
    scancel = tmp_path / "scancel"
    scancel.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/told\n')
    scancel.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    for code, told in ((0, False), (7, True)):
        two = Role("r", "", entrypoint="sh", args=["-c", f"exit {code}"], num_replicas=2)
        done = subprocess.run(
            ("bash", "-c", task_script("app", two, "/", None)),
            env={"PATH": path, "SLURM_JOB_ID": "41"},
            check=False,
        )
        assert done.returncode == code
        assert (tmp_path / "told").exists() is told
    assert (tmp_path / "told").read_text() == "--batch --signal=USR2 41\n"


def test_a_setup_runs_first_and_knows_the_variables(tmp_path: Path) -> None:
    script = task_script("app", role(env={"A": "1"}), str(tmp_path), "export B=$A,2\numask 027")
    assert run(script)[0]["B"] == "1,2"


def test_a_folder_that_is_missing_is_told_instead_of_run() -> None:
    done = subprocess.run(
        ("bash", "-c", task_script("app", role(), "/no such/folder", None)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "/no such/folder" in done.stderr


def test_the_batch_script_takes_what_the_app_asks_for(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "it's")
    plain = batch_script("app", folder, role(), 35.2)
    assert "sleep 35;" in plain
    assert "requeue" not in plain
    assert "--cpus-per-task" not in plain
    asked = role(resource=Resource(cpu=8, gpu=0, memMB=1), max_retries=2)
    text = batch_script("app", folder, asked, 35.2)
    assert "--cpus-per-task=8" in text
    assert "-lt 2" in text
    for script in (plain, text):
        subprocess.run(("bash", "-n"), input=script, text=True, check=True)
