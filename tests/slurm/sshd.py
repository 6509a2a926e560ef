"""An sshd of our own on loopback: own host key, own user key, a port that was free.

It lets in whoever runs the tests, root or not, and nobody else. What it runs has an empty home and
the environment that a test wants, such as ``SLURM_CONF``. It ends with the test session, however
that ends.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

from airflow_ett.launch.schedulers.processes import identify, is_alive, kill_all

_START_S = 20.0

_CONFIG = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
LogLevel VERBOSE
MaxSessions {sessions}
MaxStartups 100
Subsystem sftp internal-sftp
SetEnv {environment}
"""

# sshd goes when this shell's stdin is closed, which the end of the test session does, too.
_KEEP = '"$@" </dev/null & sshd=$!; read -r _; kill -9 "$sshd"; wait "$sshd"; rm -rf "$0"'


def missing() -> str | None:
    """Return why no sshd can be started here, in a sentence; None where it can."""
    absent = [command for command in ("sshd", "ssh-keygen") if _found(command) is None]
    if absent:
        return f"there is no {', '.join(absent)}: make system installs them on Debian, as root"
    return None


class Sshd:
    """Started by :meth:`start`; until :meth:`stop` it needs nothing.

    ``sessions`` is how many channels it allows on a connection; ``home`` that of all logins.
    """

    def __init__(self, environment: Mapping[str, str], *, sessions: int = 10) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ett-sshd-"))
        self.home = self.folder / "home"
        self.home.mkdir()
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self.port = _free_port()
        self._keeper: subprocess.Popen[bytes] | None = None
        for name in ("host", "user"):
            key = str(self.folder / name)
            make = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
            subprocess.run(make, check=True)
        values = {"folder": self.folder, "port": self.port, "sessions": sessions}
        variables = {"HOME": str(self.home), **environment}
        told = " ".join(f'"{name}={value}"' for name, value in variables.items())
        (self.folder / "config").write_text(_CONFIG.format(environment=told, **values))

    def start(self) -> None:
        """Listen, also again after :meth:`kill`. Raises ``RuntimeError`` with what sshd says."""
        if os.geteuid() == 0:
            # Debian's service makes that; without it sshd refuses to run as root.
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        sshd = (str(_found("sshd")), "-D", "-e", "-f", str(self.folder / "config"))
        with self.log.open("ab") as log:
            self._keeper = subprocess.Popen(
                ("sh", "-c", _KEEP, str(self.folder), *sshd),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        limit = time.monotonic() + _START_S
        while not self.listens():
            if time.monotonic() > limit or self._keeper.poll() is not None:
                self.stop()
                raise RuntimeError(f"no sshd came up: {self.log.read_text()[-2000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        """Break all sessions at once, and listen no more."""
        assert self._keeper is not None
        doomed = {process for pid in self._processes() if (process := identify(pid))}
        kill_all(lambda: set(filter(is_alive, doomed)), timeout_s=10)
        self._keeper.kill()
        self._keeper.wait()

    def cut(self) -> None:
        """Break all sessions at once, and listen on."""
        for pid in self._processes():
            with contextlib.suppress(OSError):
                what = Path(f"/proc/{pid}/cmdline").read_bytes()
                if what.startswith(b"sshd: ") and b"[listener]" not in what:
                    os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """Go away with all sessions and files."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def freeze(self, frozen: bool) -> None:
        """Stop all its processes, or have them go on: nothing is answered meanwhile."""
        for pid in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP if frozen else signal.SIGCONT)

    @property
    def log(self) -> Path:
        """What sshd tells."""
        return self.folder / "log"

    @property
    def connections(self) -> int:
        """How many TCP connections have logged in so far."""
        return self.log.read_text().count("Accepted publickey")

    def uri(self, **extras: str) -> str:
        """Return Airflow's connection to it, as in ``AIRFLOW_CONN_…``."""
        kind, key = (self.folder / "host.pub").read_text().split()[:2]
        query = {
            "key_file": str(self.folder / "user"),
            "host_key": f"{kind} {key}",
            "look_for_keys": "false",
            **extras,
        }
        return f"ssh://{self.user}@127.0.0.1:{self.port}/?{urlencode(query)}"

    def listens(self) -> bool:
        """Tell whether it can be connected to."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def _processes(self) -> list[int]:
        """Return what runs below the keeper: the listener, and all that serves a session."""
        assert self._keeper is not None
        return _below(self._keeper.pid)


def _below(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *_below(int(child))]
    return found


def _found(command: str) -> str | None:
    """Return where a command is; sshd is where an ordinary user's PATH does not lead."""
    return shutil.which(command, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def _free_port() -> int:
    """Return a port which no outgoing connection takes."""
    while True:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.socket() as held:
            held.bind(("127.0.0.1", port))
            return port
