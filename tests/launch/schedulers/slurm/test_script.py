"""The scripts of an app, run by a real shell: what arrives at the trainer."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
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


@pytest.mark.parametrize(
    ("what", "cwd", "setup", "code"),
    [
        ("exit 0", "/", None, 0),
        ("exit 7", "/", None, 7),
        ("exit 7", "/", "unset SLURM_JOB_ID; PATH=/usr/bin:/bin", 7),
        ("exit 0", "/no such/folder", None, 1),
        ("exit 0", "/", "exit 3", 3),
    ],
)
def test_of_several_nodes_the_one_that_fails_says_so(
    tmp_path: Path, what: str, cwd: str, setup: str | None, code: int
) -> None:
    """Also one that fails before its trainers are up; the others would wait for it."""
    scancel = tmp_path / "scancel"
    scancel.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/told\n')
    scancel.chmod(0o755)
    two = Role("r", "", entrypoint="sh", args=["-c", what], num_replicas=2)
    done = subprocess.run(
        ("bash", "-c", task_script("app", two, cwd, setup)),
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "41"},
        check=False,
    )
    told = tmp_path / "told"
    assert done.returncode == code
    assert (told.read_text() if told.exists() else "") == (
        "--batch --signal=USR2 41\n" if code else ""
    )


def test_a_setup_runs_first_and_knows_the_variables(tmp_path: Path) -> None:
    script = task_script("app", role(env={"A": "1"}), str(tmp_path), "export B=$A,2\numask 027")
    assert run(script)[0]["B"] == "1,2"


def test_what_is_to_end_before_it_is_up_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "end").touch()
    script = task_script("app", role(), "/", None)
    argv = ("bash", "-c", script, "task", str(tmp_path / "end"))
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (143, "")


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
    plain = batch_script("app", folder, role(), 35)
    assert "sleep 35\n" in plain
    assert "requeue" not in plain
    assert "--cpus-per-task" not in plain
    asked = role(resource=Resource(cpu=8, gpu=0, memMB=1), max_retries=2)
    text = batch_script("app", folder, asked, 35)
    assert "--cpus-per-task=8" in text
    assert "-lt 2" in text
    for script in (plain, text):
        subprocess.run(("bash", "-n"), input=script, text=True, check=True)


HEARING = ("env", "--default-signal=HUP")
"""What runs under nohup inherits that SIGHUP is ignored, and no shell can undo that."""

COMMANDS = {
    "srun": """trap '[ -e "${{@: -1}}" ] && exit {code}' TERM
echo $$ > {folder}/step
while :; do sleep 0.02; done""",
    "scancel": """case "$1" in --signal=TERM) kill -TERM "$(cat {folder}/step)";; esac""",
    "scontrol": """echo "$@" > {folder}/.asked
mv {folder}/.asked {folder}/asked""",
}


def runs_to_its_limit(folder: Path, code: int, **what: Any) -> tuple[int, str]:
    """Run a batch script whose trainers end with ``code`` when its time limit is near.

    What a login has set besides means nothing to it.

    Return how it ended, and what it asked scontrol for; Slurm ends it once it has.
    """
    for name, body in COMMANDS.items():
        path = folder / name
        path.write_text("#!/bin/bash\n" + body.format(code=code, folder=folder) + "\n")
        path.chmod(0o755)
    login = dict.fromkeys(("asked", "failed", "limit", "told"), "1")
    environ = {"SLURM_JOB_ID": "41", "SLURMD_NODENAME": "n1", **login}
    batch = subprocess.Popen(
        (*HEARING, "bash", "-c", batch_script("app", Folder(folder), role(**what), 5)),
        env={"PATH": f"{folder}:{os.environ['PATH']}", **environ},
        start_new_session=True,
    )
    asked, limit = folder / "asked", time.monotonic() + 20
    while not (folder / "step").exists() and time.monotonic() < limit:
        time.sleep(0.02)
    batch.send_signal(signal.SIGHUP)
    while batch.poll() is None and not asked.exists() and time.monotonic() < limit:
        time.sleep(0.02)
    while batch.poll() is None and time.monotonic() < limit:
        batch.terminate()  # anew: it may not have been waiting yet, which alone ends by this
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(batch.pid, signal.SIGKILL)  # what is left of its waiting
    return batch.wait(), asked.read_text().strip() if asked.exists() else ""


def test_what_ended_for_its_time_limit_waits_for_slurm_to_say_so(tmp_path: Path) -> None:
    assert runs_to_its_limit(tmp_path, 7) == (7, "update JobId=41 TimeLimit=1")


def test_a_job_notes_its_number_also_over_one_that_slurm_has_lost(tmp_path: Path) -> None:
    app = Folder(tmp_path)
    app.note_job(7)
    runs_to_its_limit(tmp_path, 0)
    assert app.job_id() == 41


def test_a_job_begins_although_one_before_it_is_over(tmp_path: Path) -> None:
    """Slurm has forgotten that one, and the app was submitted again."""
    Folder(tmp_path).note_over(7)
    assert runs_to_its_limit(tmp_path, 7)[0] == 7


def test_an_end_does_not_wait_for_a_step_that_slurm_has_yet_to_make(tmp_path: Path) -> None:
    waits = "trap '' TERM\ntouch {folder}/waits\nwhile :; do sleep 0.02; done"
    for name, body in {"srun": waits, "scancel": 'echo "$@" >> {folder}/told'}.items():
        (tmp_path / name).write_text("#!/bin/bash\n" + body.format(folder=tmp_path) + "\n")
        (tmp_path / name).chmod(0o755)
    batch = subprocess.Popen(
        ("bash", "-c", batch_script("app", Folder(tmp_path), role(), 1)),
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "41"},
        start_new_session=True,
    )
    limit = time.monotonic() + 20
    while not (tmp_path / "waits").exists() and time.monotonic() < limit:
        time.sleep(0.02)
    batch.send_signal(signal.SIGUSR1)
    try:
        assert batch.wait(20) == 137
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(batch.pid, signal.SIGKILL)
    assert (tmp_path / "told").read_text().splitlines()[-1] == "41"


def test_what_ended_well_before_its_time_limit_ended_well(tmp_path: Path) -> None:
    assert runs_to_its_limit(tmp_path, 0) == (0, "")


def test_what_slurm_is_to_retry_is_queued_again_at_once(tmp_path: Path) -> None:
    assert runs_to_its_limit(tmp_path, 7, max_retries=1) == (7, "requeue 41")
