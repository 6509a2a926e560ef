"""The worker processes of one node: how they are started, how they are stopped, how they ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

_PR_SET_PDEATHSIG = 1
SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGCHLD})
"""What the agent waits for, and blocks meanwhile; its workers get these signals unblocked."""

_libc = ctypes.CDLL(None, use_errno=True)


class Worker:
    """One rank's process, in a session of its own, so that its children die with it.

    ``exit_code`` and ``signal`` say how it ended, one of them None; both are None while it runs.
    """

    def __init__(
        self, rank: int, command: Sequence[str], environ: Mapping[str, str], error_file: str
    ) -> None:
        self.rank = rank
        self.error_file = error_file
        self.begin_ns = time.time_ns()
        self.end_ns: int | None = None
        self.exit_code: int | None = None
        self.signal: int | None = None
        agent = os.getpid()
        self._process = subprocess.Popen(
            command, env=dict(environ), start_new_session=True, preexec_fn=lambda: _bind(agent)
        )
        self.pid = self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not been seen to end."""
        return self.end_ns is None

    @property
    def failed(self) -> bool:
        """Whether it ended with anything but exit code 0."""
        return not self.running and self.exit_code != 0

    @property
    def shell_code(self) -> int:
        """The exit code as a shell has it: 128 and the signal's number for a signal."""
        return 128 + self.signal if self.signal is not None else self.exit_code or 0

    def reap(self) -> bool:
        """Note its end; True where that is news."""
        if not self.running or (status := self._process.poll()) is None:
            return False
        self.end_ns = time.time_ns()
        self.exit_code, self.signal = (status, None) if status >= 0 else (None, -status)
        self._kill_group(signal.SIGKILL)  # what it started must not hold the accelerator
        return True

    def send(self, number: signal.Signals) -> None:
        """Send a signal: SIGTERM to the process alone, SIGKILL to its children, too."""
        if number == signal.SIGKILL:
            self._kill_group(number)
        elif self.running:
            self._process.send_signal(number)

    def _kill_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def _bind(agent: int) -> None:
    """In the child: die with the agent, and take signals again."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != agent:
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
