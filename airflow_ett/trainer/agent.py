"""One agent per node, in torchrun's place: starts the workers, stops them together, tells how.

``python -m airflow_ett.trainer.agent --nproc 2 --script train.py -- --epochs 3``

A worker's failure stops the others; SIGTERM is forwarded once. The agent exits with the code of the
worker that failed first (128 and the number for a signal). A training that hangs is told of, and
with ``--on-hang end`` ended by SIGKILL. Without ``ETT_JOB`` it just runs the workers.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from airflow_ett.config import TOKEN_VARIABLE
from airflow_ett.errors import EttError
from airflow_ett.trainer import notice, rankreport, stacks
from airflow_ett.trainer.hangs import Hangs
from airflow_ett.trainer.notice import Notice, write_notice
from airflow_ett.trainer.place import Place, read_place
from airflow_ett.trainer.report import NodeReport
from airflow_ett.trainer.shipping import DRAIN_S
from airflow_ett.trainer.watchdog import FLOOR_S, Watchdog
from airflow_ett.trainer.workers import SIGNALS, Worker

HEARTBEAT_S = 5.0
PEER_GRACE_S = 5.0
"""After a worker's failure the others cannot save together any more; they get this long to end."""

LAST_S = 3.0
"""What is left for sending the report after a grace that the workers have used up."""

_NOTICE = "stop"
_STOPS = frozenset({signal.SIGTERM, signal.SIGINT})


class Agent:
    """Runs the workers of one node to their end. ``notice_file`` tells them why it is."""

    def __init__(
        self,
        workers: Sequence[Worker],
        report: NodeReport,
        hangs: Hangs,
        notice_file: Path,
        grace_s: float,
    ) -> None:
        self._workers = workers
        self._report = report
        self._hangs = hangs
        self._notice_file = notice_file
        self._grace_s = grace_s
        self._first: Worker | None = None
        self._sigterm_ns: int | None = None
        self._sigterm_s = float("inf")
        self._deadline: float | None = None

    def run(self) -> int:
        """Wait for all workers and return the exit code."""
        period_s = min(HEARTBEAT_S, self._hangs.period_s)
        next_beat = time.monotonic() + period_s
        while any(worker.running for worker in self._workers):
            self._wait(next_beat)
            now = time.monotonic()
            if now >= next_beat:
                self._report.beat()
                self._look(now)
                next_beat = now + period_s
            if self._deadline is not None and now >= self._deadline:
                self._send(signal.SIGKILL)
                self._deadline = None
        self._hangs.conclude(time.monotonic())
        self._report.end(self._workers, self._first, self._sigterm_ns)
        ended_s = time.monotonic()
        self._report.close(lambda: self._rest_s(ended_s))
        return self._first.shell_code if self._first else 0

    def _wait(self, next_beat: float) -> None:
        """Wait for a signal, a heartbeat's time or the deadline, and act on the signal."""
        until = min(next_beat, self._deadline or next_beat)
        received = signal.sigtimedwait(SIGNALS, max(0.0, until - time.monotonic()))
        if received is not None and received.si_signo != signal.SIGCHLD:
            self._terminate()
        for worker in self._workers:
            if worker.reap():
                self._report.ended(worker)
                if worker.failed:
                    self._failed(worker)

    def _look(self, now: float) -> None:
        """End the workers that hang, if that is wanted; those that are ending need no watch."""
        if self._sigterm_ns is None and self._first is None and self._hangs.look(now):
            self._send(signal.SIGKILL)

    def _terminate(self) -> None:
        """Forward the first SIGTERM or SIGINT, unless the workers are being stopped already.

        A scheduler ends all nodes when a worker of one has failed: that is no preemption.
        """
        if self._sigterm_ns is not None:
            return
        self._sigterm_ns, self._sigterm_s = time.time_ns(), time.monotonic()
        if self._first is None:
            self._stop(preemption=not self._report.peer_failed())

    def _failed(self, worker: Worker) -> None:
        """Stop the peers of the first worker that failed, unless they are ending anyway."""
        if self._first is None:
            self._first = worker
            if self._sigterm_ns is None:
                self._stop(preemption=False)

    def _stop(self, *, preemption: bool) -> None:
        """Send SIGTERM; the workers have the grace from here."""
        grace_s = self._grace_s if preemption else min(self._grace_s, PEER_GRACE_S)
        self._deadline = time.monotonic() + grace_s
        try:
            write_notice(self._notice_file, Notice(preemption, grace_s))
        except OSError as error:
            print(f"agent: its workers are not told why they are stopped: {error}", file=sys.stderr)
        self._send(signal.SIGTERM)

    def _rest_s(self, ended_s: float) -> float:
        """Return how long what is left to send may go on after the workers' end.

        A SIGTERM shortens it to the grace, of which the schedulers leave an agent a little more.
        """
        if self._sigterm_ns is None and signal.sigtimedwait(_STOPS, 0):
            self._sigterm_ns, self._sigterm_s = time.time_ns(), time.monotonic()
        grace_s = max(ended_s + LAST_S, self._sigterm_s + self._grace_s)
        return min(ended_s + DRAIN_S, grace_s) - time.monotonic()

    def _send(self, number: signal.Signals) -> None:
        for worker in self._workers:
            if worker.running:
                worker.send(number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a node's workers as the command line says; return the exit code."""
    options = _parser().parse_args(arguments)
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    os.environ["ETT_NODE"] = str(options.node_rank)
    place = _place()
    report = NodeReport(place, options.nproc * options.nnodes)
    report.begin()
    errors = Path(tempfile.mkdtemp(prefix="ett-agent-"))
    try:
        shared = _shared_environ(options, place)
        command = [sys.executable, "-u"]
        command += [options.script] if options.script else ["-m", options.module]
        command += options.args
        workers = [_start(rank, command, options, shared, errors) for rank in range(options.nproc)]
        grace_s = options.grace
        if grace_s is None:
            grace_s = place.context.grace_s if place else 30.0
        report.ship()  # a thread: no worker is forked beside it
        report.follow(errors, [worker.rank for worker in workers[1:]])
        hangs = Hangs(
            workers,
            report,
            errors,
            Watchdog(options.hang_after),
            ends=options.on_hang == "end",
            one_node=options.nnodes == 1,
        )
        return Agent(workers, report, hangs, errors / _NOTICE, grace_s).run()
    finally:
        shutil.rmtree(errors, ignore_errors=True)


def _start(
    local_rank: int,
    command: Sequence[str],
    options: argparse.Namespace,
    shared: Mapping[str, str],
    errors: Path,
) -> Worker:
    rank = options.node_rank * options.nproc + local_rank
    error_file = str(errors / f"{rank}.json")
    own = {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "TORCHELASTIC_ERROR_FILE": error_file,
        notice.VARIABLE: str(errors / _NOTICE),
        stacks.VARIABLE: str(stacks.file_of(errors, rank)),
    }
    if rank == 0 and TOKEN_VARIABLE in os.environ:
        own[TOKEN_VARIABLE] = os.environ[TOKEN_VARIABLE]  # it commits, and asks whether it may
    if local_rank:
        own[rankreport.VARIABLE] = str(rankreport.file_of(errors, rank))
    return Worker(rank, command, {**shared, **own}, error_file)


def _shared_environ(options: argparse.Namespace, place: Place | None) -> dict[str, str]:
    """Return the variables that all workers of the node get, torchrun's among them."""
    run_id = f"{place.context.key.id}-{place.attempt}" if place else f"agent-{os.getpid()}"
    port = options.master_port or (_free_port() if options.nnodes == 1 else 29500)
    environ = {name: text for name, text in os.environ.items() if name != TOKEN_VARIABLE}
    if options.nproc > 1:
        environ.setdefault("OMP_NUM_THREADS", "1")
    return {
        **environ,
        "WORLD_SIZE": str(options.nproc * options.nnodes),
        "LOCAL_WORLD_SIZE": str(options.nproc),
        "GROUP_RANK": str(options.node_rank),
        "GROUP_WORLD_SIZE": str(options.nnodes),
        "MASTER_ADDR": options.master_addr,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": run_id,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }


def _place() -> Place | None:
    try:
        return read_place()
    except EttError as error:
        print(f"agent: nothing is recorded: {error}", file=sys.stderr)
        return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _seconds(text: str) -> float:
    seconds = float(text)
    if seconds <= 0:
        raise ValueError(text)
    return seconds


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="airflow_ett.trainer.agent", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--nproc", type=int, default=1, help="workers on this node")
    add("--nnodes", type=int, default=1)
    add("--node-rank", type=int, default=0)
    add("--master-addr", default="127.0.0.1", help="host of node 0")
    add("--master-port", type=int, help="default: a free one on a single node, else 29500")
    add("--grace", type=float, help="seconds from SIGTERM to SIGKILL; default: the job's")
    add("--on-hang", choices=("record", "end"), default="record", help="what a stall leads to")
    add("--hang-after", type=_seconds, default=FLOOR_S, help="seconds without a step, at least")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--script", help="path of a Python file")
    what.add_argument("--module", help="name of a Python module")
    add("args", nargs="*", help="the worker's own arguments, after --")
    return parser


if __name__ == "__main__":
    sys.exit(main())
