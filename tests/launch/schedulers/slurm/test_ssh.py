"""Commands, files and locks by ssh, at an sshd of our own."""

from __future__ import annotations

import os
import shlex
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from airflow_ett import config
from airflow_ett.errors import ConfigurationError
from airflow_ett.launch.gateway import Gateway, validate_static
from airflow_ett.launch.schedulers.slurm import Slurm, session, ssh
from airflow_ett.launch.schedulers.slurm.cluster import cluster
from airflow_ett.launch.schedulers.slurm.login import Login
from airflow_ett.launch.schedulers.slurm.ssh import Ssh
from tests.launch.schedulers.slurm.conftest import refuse, sh
from tests.slurm.sshd import Sshd, missing

pytest.importorskip("airflow.providers.ssh", reason="pip install 'airflow-ett[ssh]'")
pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no sshd: {missing()}")


def test_a_command_gets_its_words_and_its_input_and_tells_how_it_ended(there: Ssh) -> None:
    words = ("a b", "", "it's", '"$HOME" `id` \\ !', "größer ☃", "-x", "*", "two\nlines")
    shown = there.run(
        ("sh", "-c", 'cat; printf "%s|" "$@"; echo no >&2; exit 3', "sh", *words), "in\n"
    )
    assert (shown.code, shown.err) == (3, "no\n")
    assert shown.out == "in\n" + "".join(f"{word}|" for word in words)


def test_much_goes_both_ways(there: Ssh) -> None:
    text = "line\n" * 300_000
    assert sh(there, "cat", text) == text
    assert len(there.run(("sh", "-c", "head -c 1000000 /dev/zero >&2")).err) == 1_000_000
    assert there.run(("true",), text).code == 0  # nobody reads it


def test_a_command_has_a_logins_variables_and_no_others(there: Ssh, sshd: Sshd) -> None:
    profile = sshd.home / ".bash_profile"
    profile.write_text("echo Welcome; export PATH=$HOME/bin:$PATH A=1 SBATCH_HOLD=1 LC_ALL=nl_NL\n")
    try:
        lines = sh(there, "env").splitlines()
    finally:
        profile.unlink()
    told = dict(line.split("=", 1) for line in lines)
    assert told.pop("PATH").startswith(f"{sshd.home}/bin:")
    assert {"OF_THE_LOGIN_NODE", "A", "SBATCH_HOLD"}.isdisjoint(told)
    assert (told["SLURM_CONF"], told["SLURM_TIME_FORMAT"]) == ("/etc/slurm.conf", "%s")
    assert (told["HOME"], told["LC_ALL"]) == (str(sshd.home), "C.UTF-8")


def test_a_command_that_a_login_does_not_find_says_what_to_do(there: Ssh) -> None:
    refuse(
        r"sbatchx could not be run on 127.0.0.1:\d+ .*'login'.*~/.bash_profile",
        lambda: there.run(("sbatchx",)),
    )


def test_files_are_for_their_owner_and_come_in_one_piece(there: Ssh, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "er"
    for _ in range(2):
        there.make(folder)
        there.write(folder / "file", "größer\nthan")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "file").stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == ["file"]
    assert there.read(folder / "file") == "größer\nthan".encode()
    assert there.read(folder / "file", 9, 2) == b"th"
    assert there.read(folder / "file", 100, 5) == b""
    found = there.stat(folder / "file")
    assert (found.size, found.mtime_s) == (13, int((folder / "file").stat().st_mtime))
    assert there.folders(tmp_path / "deep") == ["er"]
    assert there.folders(tmp_path / "none") == []


def test_what_is_wrong_with_a_file_is_told_as_at_home(there: Ssh, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for act in (there.read, there.stat, lambda path: there.write(path, "")):
        with pytest.raises(FileNotFoundError):
            act(tmp_path / "none" / "file")
    with pytest.raises(OSError, match="no folder"):
        there.make(tmp_path / "file" / "deep")
    assert there.read(tmp_path / "file") == b""


HOLDER = """
import sys, time
from pathlib import Path
import paramiko
from airflow_ett.launch.schedulers.slurm.session import Session
from airflow_ett.launch.schedulers.slurm.ssh import Ssh

path, user, port, key, script = sys.argv[1:]

def connect(conn_id):
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
    client.connect("127.0.0.1", int(port), user, key_filename=key)
    session = Session(client, "here", "here")
    session.look_round("")
    return session

there = Ssh("login", connect)
with there.locked(Path(path)):
    there.run(("sh", "-c", script))
    time.sleep(60)
"""


def hold(sshd: Sshd, path: Path, script: str) -> subprocess.Popen[bytes]:
    """Have another process hold a lock and run a script."""
    key = str(sshd.folder / "user")
    argv = (sys.executable, "-c", HOLDER, str(path), sshd.user, str(sshd.port), key, script)
    return subprocess.Popen(argv)


def lock(there: Ssh, path: Path) -> None:
    with there.locked(path):
        pass


def test_a_lock_keeps_others_out_and_is_let_go_of_by_who_dies(
    there: Ssh, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, pipe = tmp_path / "lock", tmp_path / "pipe"
    os.mkfifo(pipe)
    with hold(sshd, path, f"echo > {pipe}") as holder:
        try:
            pipe.read_text()
            monkeypatch.setattr(ssh, "TIMEOUT_S", 1.0)
            refuse("cannot be locked: somebody else holds it", lambda: lock(there, path))
        finally:
            holder.kill()
    monkeypatch.setattr(ssh, "TIMEOUT_S", 20.0)
    for _ in range(2):
        lock(there, path)


def test_a_command_that_outlives_its_submitter_keeps_others_out(
    there: Ssh, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, pipe = tmp_path / "lock", tmp_path / "pipe"
    os.mkfifo(pipe)
    with hold(sshd, path, f"echo $$ > {pipe}; exec sleep 60") as submitter:
        left = int(pipe.read_text())
        submitter.kill()
    try:
        monkeypatch.setattr(ssh, "TIMEOUT_S", 1.0)
        refuse("cannot be locked: somebody else holds it", lambda: lock(there, path))
    finally:
        os.kill(left, signal.SIGKILL)
    monkeypatch.setattr(ssh, "TIMEOUT_S", 20.0)
    lock(there, path)


def test_who_loses_the_session_loses_the_lock_and_does_nothing_more(
    there: Ssh, sshd: Sshd, tmp_path: Path
) -> None:
    with there.locked(tmp_path / "lock"):
        sshd.kill()
        sshd.start()
        refuse(
            "a lock on .* was lost|has broken", lambda: there.run(("touch", str(tmp_path / "it")))
        )
        refuse("a lock on .* was lost", lambda: there.run(("touch", str(tmp_path / "it"))))
    assert not (tmp_path / "it").exists()
    assert there.run(("true",)).code == 0


def test_apps_lie_where_the_connection_says_or_the_option_or_at_home(
    sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Ssh("login")
    assert there.state_dir(config.load().slurm_state_dir) == sshd.home / "ett" / "slurm"
    assert there.state_dir(Path("/of/the/option")) == Path("/of/the/option")
    for extra, place in (("/scratch/me", Path("/scratch/me")), ("~/apps", sshd.home / "apps")):
        monkeypatch.setenv("AIRFLOW_CONN_ELSEWHERE", sshd.uri(slurm_state_dir=extra))
        assert Ssh("elsewhere").state_dir(Path("/of/the/option")) == place
    assert there.address(Path("/a b/c")) == f"sftp://127.0.0.1:{sshd.port}/a%20b/c"
    monkeypatch.setenv("AIRFLOW_CONN_RELATIVE", sshd.uri(slurm_state_dir="~me/apps"))
    refuse(
        "slurm_state_dir: '~me/apps', of .*'relative'.*, is no absolute path",
        lambda: Ssh("relative").state_dir(Path("/of/the/option")),
    )


def test_without_airflows_provider_the_option_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_HOOK", "airflow.providers.no_such")
    gateway = Gateway({"slurm": lambda name, **_: Slurm(name, Path("/nowhere"))})
    with pytest.raises(
        ConfigurationError, match=r"cfg: ssh_conn_id needs .*pip install 'airflow-ett\[ssh\]'"
    ):
        gateway.prepare("utils.echo", [], "slurm", {"ssh_conn_id": "login"})


def test_who_holds_a_lock_too_long_does_nothing_more(
    there: Ssh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "_HELD_S", 1)
    with there.locked(tmp_path / "lock"):
        assert there.run(("true",)).code == 0
        time.sleep(1.5)
        refuse("a lock on .* was lost", lambda: there.run(("true",)))


def test_a_connection_that_can_be_in_no_handle_is_refused_when_the_dag_is_parsed() -> None:
    for conn_id in ("a:b", "a/b", "-a", ""):
        with pytest.raises(ConfigurationError, match=r"cfg: ssh_conn_id: .*part of a handle"):
            validate_static("train", "slurm", {"ssh_conn_id": conn_id})
    validate_static("train", "slurm", {"ssh_conn_id": "{{ params.cluster }}"})


def test_a_process_has_one_of_each_cluster_and_its_child_another() -> None:
    assert cluster("one") is cluster("one")
    assert cluster("one") is not cluster("two")
    parent = cluster("one")
    pid = os.fork()
    if pid == 0:
        os._exit(cluster("one") is parent)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_what_a_login_tells_is_read_among_what_it_prints() -> None:
    told = "Welcome\nett:HOME=/h\n\nett:PATH=/a:/b=c\n\nett:LD_LIBRARY_PATH=\nBye"
    login = Login.read(told)
    assert login.environment == {"HOME": "/h", "PATH": "/a:/b=c"}
    assert shlex.split(login.command(("sbatch", "a b")))[:4] == [
        "env",
        "-i",
        "HOME=/h",
        "PATH=/a:/b=c",
    ]
    assert login.path("~/x") == Path("/h/x")
