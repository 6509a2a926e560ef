"""Process 1 of a test cluster's own PID and mount namespace: starts Slurm's daemons and reaps.

The kernel kills whatever runs in the namespace when this process ends, and nobody outside ever
sees its mounts, so no daemon and no job outlives it. Daemons start in the foreground, in order;
then it prints ``ready`` and reaps until it is killed. What goes wrong is told with the end of the
daemon's log.

Run as ``python inside.py FOLDER NODE...`` on a folder that ``cluster.py`` has filled.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

_START_S = 60.0
_TAIL = 2000


class Daemons:
    """The daemons of one cluster, all of them children of this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._database = folder / "database"
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def up(self, nodes: Sequence[str]) -> None:
        """Start everything, and wait until all nodes are idle."""
        folder = self._folder
        self._start(
            "munged", "munged", "--foreground", "--force", f"--key-file={folder}/munge.key",
            f"--socket={folder}/munge.sock", f"--pid-file={folder}/munged.pid",
            f"--log-file={folder}/log/munged.own", f"--seed-file={folder}/munge.seed",
        )  # fmt: skip
        self._until("munged", (folder / "munge.sock").is_socket)
        if (folder / "slurmdbd.conf").exists():
            self._account()
        self._start("slurmctld", "slurmctld", "-D", "-c")
        for node in nodes:
            self._start(node, "slurmd", "-D", "-c", "-N", node)
        idle = ("sinfo", "-h", "-N", "-t", "idle", "-p", "train", "-o", "%N")
        self._until("slurmctld", lambda: len(_says(*idle).split()) == len(nodes))

    def _account(self) -> None:
        """Start the database, in memory, and the daemon that keeps Slurm's accounts in it."""
        socket = self._database / "socket"
        options = ("--no-defaults", "--user=root", f"--datadir={self._database}/data")
        subprocess.run(("mount", "-t", "tmpfs", "tmpfs", str(self._database)), check=True)
        with (self._folder / "log" / "install").open("w") as told:
            install = ("mariadb-install-db", *options, "--skip-test-db", "--skip-name-resolve")
            subprocess.run(install, check=True, stdout=told, stderr=told)
        self._start(
            "mariadbd", "mariadbd", *options, f"--socket={socket}", "--skip-networking",
            "--skip-grant-tables", "--innodb-buffer-pool-size=64M",
            "--innodb-lock-wait-timeout=900", f"--pid-file={self._database}/pid",
        )  # fmt: skip
        # Its socket is there before it answers what slurmdbd asks at once.
        log = self._folder / "log" / "mariadbd"
        self._until("mariadbd", lambda: "ready for connections" in log.read_text())
        os.environ["MYSQL_UNIX_PORT"] = str(socket)
        self._start("slurmdbd", "slurmdbd", "-D")
        self._until("slurmdbd", lambda: "|" in _says("sacctmgr", "-P", "list", "cluster"))
        _says("sacctmgr", "-i", "add", "cluster", "test")

    def _start(self, name: str, *command: str) -> None:
        with (self._folder / "log" / name).open("w") as log:
            started = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._started[name] = started

    def _until(self, name: str, true: Callable[[], bool]) -> None:
        limit = time.monotonic() + _START_S
        while not true():
            if time.monotonic() > limit or self._started[name].poll() is not None:
                text = (self._folder / "log" / name).read_text()[-_TAIL:]
                sys.exit(f"{name} did not come up:\n{text}")
            time.sleep(0.05)


def _says(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def main(folder: Path, nodes: Sequence[str]) -> None:
    """Start the cluster and stay."""
    subprocess.run(("mount", "--bind", str(folder / "hosts"), "/etc/hosts"), check=True)
    Daemons(folder).up(nodes)
    print("ready", flush=True)
    while True:
        os.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
