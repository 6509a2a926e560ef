"""The process that runs one local app, whoever launched it and whatever became of the launcher.

Three processes, all of this module: the *starter* returns as soon as the supervisor has recorded
itself; the *guard* waits for the supervisor and buries the app when it is lost; the *supervisor*
starts the replicas, each in a session of its own, and ends with the last of them. The kernel kills
the replicas with the supervisor, and the guard whatever else they had started.

Standard library only, single-threaded (it forks), and no signal handlers: signals are awaited.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from airflow_ett.launch.schedulers.appdir import (
    MARK,
    AppDir,
    Replica,
    ReplicaRequest,
    Request,
    Status,
    bury,
)
from airflow_ett.launch.schedulers.processes import (
    Process,
    become_subreaper,
    descendants,
    die_with_parent,
    here,
    identify,
    kill_all,
)

_POLL_S = 0.1
_LEFTOVERS_S = 5.0
_AWAITED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_NOT_FOUND, _NOT_RUNNABLE = 127, 126

_ENDS = {
    None: ("SUCCEEDED", "succeeded"),
    "failed": ("FAILED", "failed"),
    "cancelled": ("CANCELLED", "cancelled"),
    # Slurm's word: a SIGTERM that nobody asked for takes the machine away.
    "preempted": ("FAILED", "PREEMPTED"),
}


class Supervisor:
    """Runs the replicas of one app and keeps its status current."""

    def __init__(self, app: AppDir, request: Request) -> None:
        self._app = app
        self._request = request
        self._replicas = [Replica(r.role, r.id, "PENDING") for r in request.replicas]
        self._running: dict[int, int] = {}
        self._reason: str | None = None
        self._message = ""
        self._kill_at: float | None = None
        self._stale = False
        self._place = here()
        self._own = identify(os.getpid())
        self._allocated_ns = time.time_ns()
        self._started_ns: int | None = None

    def run(self, recorded: Callable[[], None]) -> None:
        """Run the app to its end; ``recorded`` is called once its status is on disk.

        Raises ``OSError`` when the first status cannot be written.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
        become_subreaper()
        self._app.write_status(self._status("PENDING", "starting"))
        recorded()
        if not self._cancelled():
            self._start()
        while self._running:
            self._record()
            self._await()
            self._reap()
            self._cancelled()
            self._enforce()
        self._finish()

    def _start(self) -> None:
        for index, request in enumerate(self._request.replicas):
            begin_ns = time.time_ns()
            try:
                pid = _spawn(self._app, request)
            except OSError as error:
                self._stop("failed", f"replica {request.role}/{request.id}: {error}")
                return
            self._running[pid] = index
            self._replicas[index] = self._replicas[index]._replace(
                state="RUNNING", process=identify(pid), begin_ns=begin_ns
            )
            self._started_ns = self._started_ns or begin_ns
        self._stale = True

    def _await(self) -> None:
        event = signal.sigtimedwait(_AWAITED, _POLL_S)
        terminated = event is not None and event.si_signo == signal.SIGTERM
        if terminated and not self._cancelled():
            self._stop("preempted", "the supervisor received SIGTERM, which nobody had requested")

    def _reap(self) -> None:
        failure = None
        for pid, status in _ended_children():
            index = self._running.pop(pid, None)
            if index is None:
                continue
            replica = self._replicas[index] = _ended(self._replicas[index], status)
            if replica.state == "FAILED" and self._reason:
                self._replicas[index] = replica._replace(state="CANCELLED")
            elif replica.state == "FAILED":
                failure = failure or replica
            self._stale = True
        if failure:
            self._stop("failed", _describe(failure))

    def _cancelled(self) -> bool:
        if self._app.cancel.exists():
            self._stop("cancelled", "cancelled on request")
        return self._reason is not None

    def _stop(self, reason: str, message: str) -> None:
        """Begin the end, once: the first reason counts."""
        if self._reason:
            return
        self._reason, self._message = reason, message
        self._kill_at = time.monotonic() + self._request.grace_s
        self._stale = True
        for pid in self._running:
            _signal_group(pid, signal.SIGTERM)

    def _enforce(self) -> None:
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            kill_all(self._tree, timeout_s=_POLL_S)

    def _tree(self) -> set[Process]:
        return descendants(os.getpid()) | self._app.processes()

    def _finish(self) -> None:
        """End what the replicas left behind, then record the end: terminal means all is over."""
        left = kill_all(self._tree, _LEFTOVERS_S)
        if left:
            self._message += f"; still alive: {sorted(process.pid for process in left)}"
        graceful = all(replica.state == "SUCCEEDED" for replica in self._replicas)
        if self._reason == "preempted" and graceful:
            self._reason = None
        status = self._status(*_ENDS[self._reason])._replace(ended_ns=time.time_ns())
        while not self._write(status) and self._app.path.is_dir():
            time.sleep(1.0)

    def _record(self) -> None:
        if self._stale:
            raw = "stopping" if self._reason else "running"
            self._stale = not self._write(self._status("RUNNING", raw))

    def _write(self, status: Status) -> bool:
        """Store the status; a full disk must not end the supervision."""
        try:
            self._app.write_status(status)
        except OSError as error:
            print(f"status not written: {error}", file=sys.stderr, flush=True)
            return False
        return True

    def _status(self, state: str, raw: str) -> Status:
        return Status(
            app=self._request.app,
            place=self._place,
            supervisor=self._own,
            state=state,
            raw=raw,
            message=self._message,
            allocated_ns=self._allocated_ns,
            started_ns=self._started_ns,
            ended_ns=None,
            replicas=tuple(self._replicas),
        )


def _spawn(app: AppDir, request: ReplicaRequest) -> int:
    """Start one replica and return its pid. Raises ``OSError`` when it cannot be forked."""
    path = app.log(request.role, request.id)
    path.parent.mkdir(exist_ok=True)
    output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(request, app, output, supervisor)
    os.close(output)
    return pid


def _become(request: ReplicaRequest, app: AppDir, output: int, supervisor: int) -> NoReturn:
    """Turn this forked child into the replica."""
    code = _NOT_RUNNABLE
    try:
        os.setsid()
        die_with_parent()
        if os.getppid() != supervisor:
            os._exit(code)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        # Python ignores some, nohup and shells others; an exec'd program must not inherit that.
        for number in signal.valid_signals():
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.chdir(request.cwd)
        env = {**os.environ, **request.env, MARK: str(app.path)}
        os.execvpe(request.argv[0], request.argv, env)
    except FileNotFoundError as error:
        code = _NOT_FOUND
        os.write(2, f"cannot run {request.argv[0]!r} in {request.cwd!r}: {error}\n".encode())
    except BaseException as error:
        os.write(2, f"cannot run {request.argv[0]!r}: {error}\n".encode())
    os._exit(code)


def _ended_children() -> list[tuple[int, int]]:
    ended = []
    with contextlib.suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            ended.append(child)
    return ended


def _ended(replica: Replica, status: int) -> Replica:
    code = os.waitstatus_to_exitcode(status)
    return replica._replace(
        state="SUCCEEDED" if code == 0 else "FAILED",
        end_ns=time.time_ns(),
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
    )


def _describe(failure: Replica) -> str:
    how = f"signal {failure.signal}" if failure.signal else f"exit code {failure.exit_code}"
    return f"replica {failure.role}/{failure.id} ended with {how}"


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        # Not yet a group leader: the fork is that young.
        os.kill(pid, number)
    except PermissionError as error:
        print(f"signal {number} to {pid}: {error}", file=sys.stderr, flush=True)


def main(folder: str, lock: int) -> NoReturn:
    """Start supervisor and guard for the app in ``folder``; the starter exits 0 once it runs.

    ``lock`` is the app's lock, inherited from whoever starts it.
    """
    app = AppDir(Path(folder))
    readable, writable = os.pipe()
    if os.fork():
        os.close(writable)
        os._exit(0 if os.read(readable, 1) else 1)
    os.close(readable)
    become_subreaper()
    supervisor = os.fork()
    if supervisor == 0:
        _supervise(app, ready=writable, lock=lock)
    os.close(writable)
    os.close(lock)
    _guard(app, supervisor)


def _supervise(app: AppDir, *, ready: int, lock: int) -> NoReturn:
    def recorded() -> None:
        # The starter may have been killed.
        with contextlib.suppress(BrokenPipeError):
            os.write(ready, b".")
        os.close(ready)
        os.close(lock)

    try:
        request = app.read_request()
        if request is None:
            raise ValueError(f"{app.path} holds no readable request")
        Supervisor(app, request).run(recorded)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def _guard(app: AppDir, supervisor: int) -> NoReturn:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == supervisor:
            break
    last = app.read_status()
    if status != 0 and last is not None and last.ended_ns is None:
        bury(app, last, lambda: descendants(os.getpid()))
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
