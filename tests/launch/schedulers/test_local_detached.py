"""The scheduler: any process may ask, nobody starts an app twice, and strangers are left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from torchx.schedulers.api import Stream
from torchx.specs import AppDef, AppState, Role, macros

from airflow_ett.errors import LaunchError
from airflow_ett.launch.schedulers.local_detached import GRACE_KEY, create_scheduler
from airflow_ett.launch.schedulers.processes import Process, identify, is_alive


def test_other_processes_submit_ask_read_and_cancel(local: Any) -> None:
    local.ask_other("submit('app', 'echo hello; sleep 60')")
    local.said("app", "hello")
    ask = "d = local.detail('app'); print(d.state, d.raw, d.replicas[0].state)"
    assert local.ask_other(ask) == "RUNNING running RUNNING"
    assert local.ask_other("print(*local.log_iter('app', 'r0'), end='')") == "hello"
    assert local.ask_other("print([a.app_id for a in local.list()])") == "['app']"
    local.ask_other("local.cancel('app')")
    assert local.ended("app").state == "CANCELLED"


def test_an_app_outlives_the_sigkill_of_its_submitter(local: Any) -> None:
    """Field report R09."""
    submitter = local.other(
        "submit('app', 'sleep 1; echo done'); print('up', flush=True)\nimport time; time.sleep(60)"
    )
    submitter.stdout.readline()
    os.killpg(submitter.pid, signal.SIGKILL)
    submitter.wait()
    submitter.stdout.close()
    local.until(lambda: local.detail("app").state == "RUNNING")
    assert local.ended("app").state == "SUCCEEDED"
    assert local.output("app") == "done\n"


def test_many_submits_of_one_name_make_one_app(local: Any) -> None:
    def submit(_: int) -> bool:
        try:
            local.submit("app", "echo started; sleep 1")
        except LaunchError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(submit, range(8))) == 1
    assert local.ended("app").state == "SUCCEEDED"
    assert local.output("app") == "started\n"


def test_a_start_that_nobody_finished_is_seen_and_finished_once(local: Any) -> None:
    """Field report R02: the submitter died between the folder and the supervisor."""
    local.app("app").path.mkdir(parents=True)
    status = local.detail("app")
    assert (status.state, status.raw) == ("SUBMITTED", "unstarted")
    local.submit("app", "echo late")
    assert local.ended("app").state == "SUCCEEDED"
    assert local.output("app") == "late\n"


def test_a_submitter_killed_while_the_supervisor_starts_leaves_one_app(local: Any) -> None:
    """Field report R02: the start lock lives on in the supervisor."""
    dies = (
        "import os, subprocess\nsubprocess.Popen.wait = lambda *a, **k: os.kill(os.getpid(), 9)\n"
    )
    submitter = local.other(dies + "submit('app', 'echo started; sleep 1')")
    assert submitter.wait(timeout=60) == -signal.SIGKILL
    submitter.stdout.close()
    with pytest.raises(LaunchError, match="exists already"):
        local.submit("app", "echo again")
    assert local.ended("app").state == "SUCCEEDED"
    assert local.output("app") == "started\n"


def test_a_start_in_progress_is_no_unfinished_one(local: Any) -> None:
    app = local.app("app")
    app.path.mkdir(parents=True)
    script = (
        "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX);"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(app.lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as starter:
        assert starter.stdout is not None
        starter.stdout.readline()
        assert local.detail("app").raw == "starting"
        starter.kill()
    assert local.detail("app").raw == "unstarted"


def test_an_unfinished_start_that_was_cancelled_never_starts(local: Any) -> None:
    local.app("app").path.mkdir(parents=True)
    local.scheduler.cancel("app")
    assert (local.detail("app").state, local.detail("app").replicas) == ("CANCELLED", ())
    with pytest.raises(LaunchError, match="exists already"):
        local.submit("app", "echo never")
    assert local.output("app") == ""


def test_a_second_cancel_and_one_after_the_end_change_nothing(local: Any) -> None:
    local.submit("app", "exit 4")
    ended = local.ended("app")
    local.scheduler.cancel("app")
    local.scheduler.cancel("nothing-of-that-name")
    assert local.detail("app") == ended


@pytest.mark.parametrize(
    ("differences", "state", "raw"),
    [
        (["host"], "UNKNOWN", "other_host"),
        (["host", "boot"], "UNKNOWN", "other_host"),
        (["namespace"], "UNKNOWN", "other_host"),
        (["boot"], "FAILED", "supervisor_lost"),
        (["boot", "namespace"], "FAILED", "supervisor_lost"),
    ],
)
def test_an_app_of_another_place_is_untouched_and_over_only_with_its_host(
    local: Any, differences: list[str], state: str, raw: str
) -> None:
    local.submit("app", "sleep 60")
    replica = local.replica("app").process
    own = local.recorded("app")
    local.kill_supervisor("app")
    local.until(lambda: local.recorded("app").ended_ns is not None, 5)
    place = own.place._replace(**dict.fromkeys(differences, "other"))
    elsewhere = own._replace(place=place, state="RUNNING")
    # Its pids are those of a stranger here.
    with subprocess.Popen(["sleep", "60"]) as stranger:
        found = identify(stranger.pid)
        replicas = (own.replicas[0]._replace(process=found, state="RUNNING"),)
        local.app("app").write_status(elsewhere._replace(replicas=replicas))
        status = local.detail("app")
        assert (status.state, status.raw) == (state, raw)
        assert stranger.poll() is None
        stranger.kill()
    assert not is_alive(replica)
    assert local.recorded("app").state == ("RUNNING" if state == "UNKNOWN" else state)


def test_a_pid_used_again_is_neither_taken_for_the_supervisor_nor_killed(local: Any) -> None:
    local.submit("app", "exit 0")
    local.ended("app")
    with subprocess.Popen(["sleep", "60"]) as stranger:
        found = identify(stranger.pid)
        assert found is not None
        former = Process(found.pid, found.start - 1)
        past = local.recorded("app")
        replica = past.replicas[0]._replace(process=former, end_ns=None, state="RUNNING")
        local.app("app").write_status(
            past._replace(state="RUNNING", ended_ns=None, supervisor=former, replicas=(replica,))
        )
        assert local.detail("app").raw == "supervisor_lost"
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.parametrize(
    "damage", [b"", b'{"app": "x", "sta', b"[]", b"{}", b'{"place": 1}', b"\xff\xfe"]
)
def test_a_damaged_status_is_unknown_and_starts_nothing(local: Any, damage: bytes) -> None:
    local.submit("app", "exit 0")
    local.ended("app")
    (local.state_dir / "app" / "status.json").write_bytes(damage)
    assert (local.detail("app").state, local.detail("app").raw) == ("UNKNOWN", "unreadable")
    with pytest.raises(LaunchError):
        local.submit("app", "exit 0")


def test_tailing_ends_with_the_app_and_misses_nothing(local: Any) -> None:
    local.submit("app", "for i in 1 2 3; do echo line $i; sleep 0.2; done; printf unfinished")
    lines = list(local.scheduler.log_iter("app", "r0", should_tail=True))
    assert lines == ["line 1\n", "line 2\n", "line 3\n", "unfinished"]
    assert list(local.scheduler.log_iter("app", "r0", regex="2")) == ["line 2\n"]


def test_both_streams_are_kept_in_order_and_replicas_apart(local: Any) -> None:
    local.submit("app", "echo out $TORCHX_RANK0_HOST; echo err >&2; echo out again", num_replicas=2)
    local.ended("app")
    assert list(local.scheduler.log_iter("app", "r0", k=1, streams=Stream.COMBINED)) == [
        "out localhost\n",
        "err\n",
        "out again\n",
    ]
    with pytest.raises(ValueError, match=r"Stream\.COMBINED"):
        local.scheduler.log_iter("app", "r0", streams=Stream.STDERR)


def test_airflow_settings_stay_out_and_role_variables_come_in(
    local: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AIRFLOW__CORE__FERNET_KEY", "AIRFLOW_CONN_PG", "AIRFLOW_VAR_TOKEN"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("SITE_SETTING", "kept")
    local.submit("app", "env", env={"OWN": macros.app_id + "/" + macros.replica_id})
    local.ended("app")
    environment = local.output("app").splitlines()
    assert not [line for line in environment if "secret" in line]
    assert {"SITE_SETTING=kept", "OWN=app/0"} <= set(environment)
    assert "secret" not in "".join(
        path.read_text() for path in local.app("app").path.glob("*.json")
    )


def test_python_means_the_submitters_and_an_image_that_is_a_folder_is_the_cwd(
    local: Any, tmp_path: Path
) -> None:
    role = Role(
        name="r0",
        image=str(tmp_path),
        entrypoint="python",
        args=["-c", "import os, sys; print(sys.executable, os.getcwd())"],
    )
    app = AppDef(name="app", roles=[role])
    local.scheduler.schedule(local.scheduler.submit_dryrun(app, {}))
    local.ended("app")
    assert local.output("app").split() == [sys.executable, str(tmp_path)]


def test_the_longest_grace_that_anybody_needs_is_granted(local: Any) -> None:
    roles = [
        Role(name="a", image="", entrypoint="true", metadata={GRACE_KEY: 90}),
        Role(name="b", image="", entrypoint="true"),
    ]
    request = local.scheduler.submit_dryrun(AppDef(name="app", roles=roles), {}).request
    assert request.grace_s == 90


def test_torchx_sees_states_and_hosts(local: Any) -> None:
    local.submit("app", "exit 2")
    local.ended("app")
    described = local.scheduler.describe("app")
    assert described.state is AppState.FAILED
    assert described.roles_statuses[0].replicas[0].hostname == os.uname().nodename
    assert local.scheduler.describe("nothing") is None
    assert local.scheduler.describe("../escape") is None


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", "x" * 129])
def test_a_name_that_is_no_folder_is_refused(local: Any, name: str) -> None:
    with pytest.raises(LaunchError, match="app id"):
        local.submit(name, "exit 0")


def test_a_state_directory_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    scheduler = create_scheduler("test", state_dir=blocker / "apps")
    app = AppDef(name="app", roles=[Role(name="r", image="", entrypoint="true")])
    with pytest.raises(LaunchError, match="app app could not be started"):
        scheduler.schedule(scheduler.submit_dryrun(app, {}))


def test_a_supervisor_that_cannot_start_says_why(
    local: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_ett.launch.schedulers.starting._BOOT", "raise SystemExit('bad')")
    with pytest.raises(LaunchError, match="did not start: bad"):
        local.submit("app", "exit 0")
    assert local.detail("app").raw == "unstarted"


def test_a_submit_is_fast(local: Any) -> None:
    """Measured alone it takes 0.1 s; the limit leaves room for a busy machine."""

    def seconds(number: int) -> float:
        begin = time.monotonic()
        local.submit(f"app{number}", "exit 0")
        return time.monotonic() - begin

    assert min(seconds(number) for number in range(3)) < 1.0


def test_the_request_on_disk_is_the_owners_alone(local: Any) -> None:
    local.submit("app", "exit 0")
    local.ended("app")
    assert local.app("app").path.stat().st_mode & 0o777 == 0o700
    request = local.state_dir / "app" / "request.json"
    assert request.stat().st_mode & 0o777 == 0o600
    assert json.loads(request.read_text())["replicas"][0]["argv"] == ["/bin/sh", "-c", "exit 0"]
