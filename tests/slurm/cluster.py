"""A real Slurm on this machine: munge, slurmdbd with MariaDB, slurmctld and a slurmd per node.

It lives in a PID and a mount namespace of its own (``inside.py``), listens on loopback alone, on
ports that were free, and is gone with the test session, however that ends (``keeper.py``). Slurm's
commands reach it where ``SLURM_CONF`` is :attr:`Cluster.conf`.

What one machine cannot show: memory limits (no cgroups), and clocks that differ.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

COMMANDS = ("sbatch", "slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd", "unshare")
CPUS = 4
"""Of each node, on paper."""

_START_S = 120.0

_KEEPER = Path(__file__).with_name("keeper.py")

_SLURM = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire={requeue_wait}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
StateSaveLocation={folder}/controller
SlurmdSpoolDir={folder}/spool-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait={kill_wait}
MinJobAge={min_job_age}
SlurmdTimeout=10
InactiveLimit=0
{accounting}
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] \
CPUs={cpus} RealMemory=4000
PartitionName=train Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE
PartitionName=urgent Nodes=ALL PriorityTier=100 PreemptMode=OFF
PartitionName=closed Nodes=ALL State=DOWN
"""

_ACCOUNTING = """
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={ports[1]}
AccountingStoragePass={folder}/munge.sock
JobAcctGatherType=jobacct_gather/none
"""

_NO_ACCOUNTING = "AccountingStorageType=accounting_storage/none"

_ACCOUNTANT = """
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
DbdHost=localhost
DbdPort={ports[1]}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=localhost
PidFile={folder}/slurmdbd.pid
"""


def missing() -> str | None:
    """Return why no cluster can be started here, in a sentence; None where it can."""
    absent = [command for command in COMMANDS if shutil.which(command) is None]
    if absent:
        return f"there is no {', '.join(absent)}: make system installs them on Debian, as root"
    if os.geteuid() != 0:
        return "only root can start Slurm's daemons and namespaces"
    tried = subprocess.run(("unshare", "--pid", "--mount-proc", "--fork", "true"), check=False)
    return None if tried.returncode == 0 else "PID and mount namespaces are not to be had here"


class Cluster:
    """Started by :meth:`start`; until :meth:`stop` it needs nothing.

    Times are in seconds. ``requeue_wait`` passes before a requeued job starts again: Slurm lets the
    credentials of its last run expire first, 120 s by default and 5 s at least, so those of a job
    whose start takes longer than that do, too.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        accounting: bool = True,
        min_job_age: int = 300,
        kill_wait: int = 5,
        requeue_wait: int = 120,
    ) -> None:
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self._accounting = accounting
        self._min_job_age = min_job_age
        self._kill_wait = kill_wait
        self._requeue_wait = requeue_wait
        self._again: dict[str, subprocess.Popen[bytes]] = {}
        self._folder: Path | None = None
        self._keeper: subprocess.Popen[bytes] | None = None

    @property
    def folder(self) -> Path:
        """Where it keeps all it has."""
        assert self._folder is not None, "the cluster was not started"
        return self._folder

    @property
    def conf(self) -> str:
        """What SLURM_CONF is to be."""
        return str(self.folder / "slurm.conf")

    def start(self) -> None:
        """Come up within seconds. Raises ``RuntimeError`` with the end of a daemon's log."""
        # A socket's path may have 108 characters, which pytest's own folders use up.
        self._folder = Path(tempfile.mkdtemp(prefix="ett-slurm-"))
        self._write()
        self._keeper = subprocess.Popen(
            (
                sys.executable,
                str(Path(__file__).with_name("keeper.py")),
                str(self.folder),
                *self.nodes,
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self.folder / "log" / "keeper").open("w"),
            env={**_without_slurm(), "SLURM_CONF": self.conf},
            cwd=self.folder,  # where a daemon that crashes leaves its core
            start_new_session=True,
        )
        assert self._keeper.stdout is not None
        readable, _, _ = select.select([self._keeper.stdout], [], [], _START_S)
        if not readable or self._keeper.stdout.readline() != b"ready\n":
            told = (self.folder / "log" / "keeper").read_text()
            self.stop()
            raise RuntimeError(f"no Slurm came up: {told}")

    def stop(self) -> None:
        """Go away with all that runs on it and all it has written."""
        if self._keeper is not None and self._keeper.stdin is not None:
            # A process that the test session has forked, without more, holds the pipe open, too.
            with contextlib.suppress(BrokenPipeError):
                self._keeper.stdin.write(b"\n")
                self._keeper.stdin.close()
            self._keeper.wait()
            self._keeper = None
        for entered in self._again.values():
            entered.wait()
        self._again.clear()

    def run(self, *command: str) -> str:
        """Run one of Slurm's commands and return what it prints."""
        environment = {**_without_slurm(), "SLURM_CONF": self.conf}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def kill(self, daemon: str) -> None:
        """Kill slurmctld, slurmdbd or, by its name, a node's slurmd; jobs that run go on."""
        doomed = [pid for pid, is_daemon in self._of(daemon).items() if is_daemon]
        assert doomed, f"there is no {daemon} to kill"
        for pid in doomed:
            os.kill(pid, signal.SIGKILL)
        self.until(lambda: not set(doomed) & self._of(daemon).keys())

    def start_again(self, daemon: str, *options: str) -> None:
        """Start what was killed, with the state that it had saved.

        ``-b`` says that the slurmd's node was booted, which Slurm learns from nothing else here.
        """
        # Process 1 there is the only child of the keeper's only child.
        assert self._keeper is not None
        first = _children(_children(self._keeper.pid)[0])[0]
        node = ("slurmd", "-D", *options, "-N", daemon)
        with (self.folder / "log" / daemon).open("a") as log:
            self._again[daemon] = subprocess.Popen(
                (
                    *("nsenter", f"--target={first}", "--pid", "--mount"),
                    *(node if daemon in self.nodes else (daemon, "-D")),
                ),
                env={
                    **_without_slurm(),
                    "SLURM_CONF": self.conf,
                    "MYSQL_UNIX_PORT": str(self.folder / "database" / "socket"),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )

    def lose(self, node: str) -> None:
        """Kill a node's slurmd with all that it runs, as a loss of power does."""
        for pid in sorted(self._of(node)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _of(self, daemon: str) -> dict[int, bool]:
        """Return a daemon's processes, and whether each is the daemon itself or what it runs."""
        ends = f"-N\0{daemon}\0" if daemon in self.nodes else f"{daemon}\0-D\0"
        starts = f"{daemon}\0-D\0-c\0"
        jobs = f"SLURMD_NODENAME={daemon}\0".encode()
        found = dict[int, bool]()
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                environ = (path / "environ").read_bytes()
                command = (path / "cmdline").read_bytes().decode(errors="replace")
                if self.conf.encode() not in environ or command.startswith("nsenter"):
                    continue
                if command.endswith(ends) or command == starts:
                    found[int(path.name)] = True
                elif jobs in environ:
                    parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
                    found[int(path.name)] = found[int(parent)] = False  # that is its slurmstepd
        return found

    def clear(self) -> None:
        """End all jobs and wait until they are gone."""
        self.run("scancel", "--me")
        self.until(lambda: not self.run("squeue", "--noheader"))

    def until(self, true: Callable[[], object], timeout_s: float = 30) -> None:
        """Wait until something holds."""
        limit = time.monotonic() + timeout_s
        while not true():
            assert time.monotonic() < limit, self.run("scontrol", "show", "job")
            time.sleep(0.05)

    def _write(self) -> None:
        folder, count = self.folder, len(self.nodes)
        for name in ("log", "controller", "database", *(f"spool-{node}" for node in self.nodes)):
            (folder / name).mkdir()
        first = _free_ports(count + 2)
        values = {
            "host": socket.gethostname().partition(".")[0],
            "folder": folder,
            "ports": (first + count, first + count + 1),
            "nodes": count,
            "first": first,
            "last": first + count - 1,
            "cpus": CPUS,
            "kill_wait": self._kill_wait,
            "min_job_age": self._min_job_age,
            "requeue_wait": self._requeue_wait,
        }
        accounting = (
            _ACCOUNTING if self._accounting else "AccountingStorageType=accounting_storage/none"
        )
        text = _SLURM.format(accounting=accounting.format(**values), **values)
        (folder / "slurm.conf").write_text(text)
        if self._accounting:
            _private(folder / "slurmdbd.conf", _ACCOUNTANT.format(**values).encode())
        _private(folder / "munge.key", os.urandom(1024))
        names = f"127.0.0.1 {' '.join(self.nodes)}\n"
        (folder / "hosts").write_text(Path("/etc/hosts").read_text() + names)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def _without_slurm() -> dict[str, str]:
    """Return this process's environment, without what speaks of another cluster or job."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_"))}


def _free_ports(count: int) -> int:
    """Return the first of so many free ports in a row, which no outgoing connection takes."""
    while True:
        first = random.randrange(20_000, 32_000)
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(first, first + count):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
