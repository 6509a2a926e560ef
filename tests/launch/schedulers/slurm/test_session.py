"""One session by ssh, which many threads share and which may break at any time."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.errors import LaunchError
from airflow_ett.launch.schedulers.slurm import session, ssh
from airflow_ett.launch.schedulers.slurm.ssh import Ssh
from tests.launch.schedulers.slurm.conftest import refuse, sh
from tests.slurm.sshd import Sshd, missing

pytest.importorskip("airflow.providers.ssh", reason="pip install 'airflow-ett[ssh]'")
pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no sshd: {missing()}")

THREADS = 24


def test_many_threads_share_one_session(there: Ssh, sshd: Sshd, tmp_path: Path) -> None:
    before = sshd.connections
    begin = threading.Barrier(THREADS)

    def use(number: int) -> tuple[str, bytes]:
        begin.wait(10)
        path = tmp_path / str(number)
        with (
            there.locked(tmp_path / "lock")
            if number % 4 == 0
            else there.locked(tmp_path / str(-number))
        ):
            there.write(path, str(number))
            return sh(there, "cat", str(number)), there.read(path)

    with ThreadPoolExecutor(THREADS) as threads:
        answers = list(threads.map(use, range(THREADS)))
    assert answers == [(str(number), str(number).encode()) for number in range(THREADS)]
    assert sshd.connections == before + 1


@pytest.mark.parametrize("sessions", [1, 2])
def test_a_login_node_may_allow_few_channels_and_is_told_where_they_are_too_few(
    sessions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sshd = Sshd({}, sessions=sessions)
    sshd.start()
    monkeypatch.setenv("AIRFLOW_CONN_NARROW", sshd.uri())
    there = Ssh("narrow")

    def use(number: int) -> str:
        there.write(tmp_path / str(number), "")
        return sh(there, "echo 1")

    try:
        with ThreadPoolExecutor(4) as threads:
            assert set(threads.map(use, range(8))) == {"1\n"}
        with there.locked(tmp_path / "lock"):
            if sessions == 1:
                monkeypatch.setattr(session, "REPLY_S", 0.5)
                refuse("should allow 10 at a time .MaxSessions.", lambda: use(9))
            else:
                assert use(9) == "1\n"
    finally:
        sshd.stop()


def test_a_session_that_breaks_ends_what_waits_on_it_and_is_opened_again(
    there: Ssh, sshd: Sshd, tmp_path: Path
) -> None:
    began = tmp_path / "began"
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(there.run, ("sh", "-c", f"touch {began}; sleep 60"))
        while not began.exists():
            time.sleep(0.01)
        sshd.kill()
        cut_off = r"sh on 127.0.0.1.* was cut off: the session has broken"
        assert refuse(cut_off, lambda: waiting.result(10)) < 5
    for act in (lambda: there.run(("true",)), lambda: there.read(began)):
        refuse(r"no session by SSH connection 'login'.*Is the login node up", act)
    sshd.start()
    assert there.run(("true",)).code == 0
    assert there.read(began) == b""


def test_one_that_broke_unnoticed_costs_nothing(there: Ssh, sshd: Sshd, tmp_path: Path) -> None:
    there.write(tmp_path / "file", "1")
    sshd.kill()
    sshd.start()
    assert there.read(tmp_path / "file") == b"1"
    sshd.kill()
    sshd.start()
    assert sh(there, "echo 1") == "1\n"


RELAY = """
import os, socket, sys, threading
there = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def send():
    while got := os.read(0, 65536):
        there.sendall(got)
    os._exit(0)
threading.Thread(target=send, daemon=True).start()
while got := there.recv(65536):
    os.write(1, got)
"""


def test_the_command_to_a_jump_host_is_started_again_when_it_has_ended(
    there: Ssh, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = tmp_path / "relay.py"
    relay.write_text(RELAY)
    (tmp_path / ".ssh").mkdir()
    command = f"{sys.executable} {relay} 127.0.0.1 {sshd.port}"
    (tmp_path / ".ssh" / "config").write_text(f"Host *\n  ProxyCommand {command}\n")
    monkeypatch.setenv("HOME", str(tmp_path))

    before = sshd.connections
    for number in (1, 2):
        assert sh(there, "echo 1") == "1\n"
        assert there.read(relay) == RELAY.encode()
        assert sshd.connections == before + number
        current = there._session()
        current._transport.sock.process.kill()
        while current.alive:
            time.sleep(0.01)


def test_one_that_does_not_answer_is_given_up(
    there: Ssh, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    there.read(tmp_path / "file")
    for name in ("REPLY_S", "FILES_S"):
        monkeypatch.setattr(session, name, 0.5)
    for act in (lambda: there.run(("true",)), lambda: there.read(tmp_path / "file")):
        sshd.freeze(True)
        try:
            assert refuse("SSH connection 'login'", act) < 10
        finally:
            sshd.freeze(False)
        assert there.run(("true",)).code == 0


def test_a_command_that_takes_too_long_is_given_up(
    there: Ssh, monkeypatch: pytest.MonkeyPatch
) -> None:
    there.run(("true",))
    monkeypatch.setattr(session, "TIMEOUT_S", 0.5)
    refuse(r"sleep on .* did not end within 0.5 s: slurmctld", lambda: there.run(("sleep", "60")))
    monkeypatch.undo()


def test_who_cannot_connect_is_not_tried_again_by_each(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []

    def connect(conn_id: str) -> Any:
        tries.append(conn_id)
        time.sleep(0.2)
        raise LaunchError("refused")

    there = Ssh("away", connect)
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(lambda _: refuse("refused", lambda: there.run(("true",))), range(THREADS)))
    assert tries == ["away"]
    monkeypatch.setattr(ssh, "AGAIN_S", 0.0)
    refuse("refused", lambda: there.run(("true",)))
    assert tries == ["away"] * 2


def test_a_host_that_is_another_is_not_trusted_and_no_secret_is_told(
    sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = (sshd.folder / "user.pub").read_text().split()[1]
    uri = sshd.uri(host_key=f"ssh-ed25519 {other}").replace(f"{sshd.user}@", f"{sshd.user}:s3cret@")
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", uri)
    with pytest.raises(
        LaunchError, match=r"BadHostKeyException.*the host's own key in host_key"
    ) as told:
        Ssh("other").run(("true",))
    assert "s3cret" not in str(told.value)
    refuse("no session by SSH connection 'none'.*isn't defined", lambda: Ssh("none").run(("true",)))
