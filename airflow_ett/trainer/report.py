"""What an agent tells of its node: the log, the heartbeat, the reply. No error leaves this module.

Without a job's context it tells nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_ett.errors import EttError
from airflow_ett.events import CursorRecord, Kind, LogWriter, agent_writer, read_cursor
from airflow_ett.storage import Storage
from airflow_ett.trainer.failure import told
from airflow_ett.trainer.outbox import size_of
from airflow_ett.trainer.place import Place, ask, process_start_ns
from airflow_ett.trainer.rankreport import RankReports, file_of
from airflow_ett.trainer.shipping import Shipper, carry_over
from airflow_ett.trainer.watchdog import Stall
from airflow_ett.trainer.workers import Worker

_ANSWER_S = 2.0
"""How long a SIGTERM waits for what the other nodes have told: the grace has begun."""

_PEER_LOOK_S = 5.0


class NodeReport:
    """Writes for one node what its agent sees; ``place`` is None outside a launched job."""

    def __init__(self, place: Place | None, world_size: int) -> None:
        self._place = place
        self._world_size = world_size
        self._host = os.uname().nodename
        self._log: LogWriter | None = None
        self._ranks: RankReports | None = None
        self._warned = False
        self._oom_kills = _oom_kills()
        self._shipper = self._make_shipper(place) if place and place.context.log else None
        self._first_stacks = 0
        self._peer_failed = False
        self._peer_look = 0.0
        self.hung: Stall | None = None
        """The stall for which the agent ended its workers."""

    def begin(self) -> None:
        """The agent has started."""
        self._guarded(self._begin)
        self.beat()

    def follow(self, folder: Path, ranks: Sequence[int]) -> None:
        """Pass on what these ranks tell in ``folder``: they have no log of their own."""
        if self._log is not None:
            self._ranks = RankReports(self._log, {rank: file_of(folder, rank) for rank in ranks})

    def ship(self) -> None:
        """Send what is written, from now on, to where the job's log lies, if that is elsewhere."""
        if self._shipper is not None:
            self._shipper.start()

    def close(self, rest_s: Callable[[], float]) -> None:
        """Send the rest, as long as ``rest_s`` leaves seconds for it."""
        if self._shipper is not None:
            self._shipper.close(rest_s)

    def beat(self) -> None:
        """Touch the heartbeat file, and pass on what the ranks have told since."""
        if self._ranks is not None:
            self._guarded(self._ranks.look)
        if self._place is not None:
            heartbeat = self._place.run_dir.heartbeat(self._place.attempt, self._place.node)
            self._guarded(heartbeat.touch)

    def peer_failed(self) -> bool:
        """Whether another node of the attempt has told that a worker of it failed by itself.

        False where that is not known in time. The reply will tell what came of it.
        """
        place = self._place
        if place is None:
            return False
        try:
            self._peer_failed = ask(lambda: _peer_failed(place), _ANSWER_S)
            return self._peer_failed
        except (EttError, OSError, ValueError, TypeError, KeyError) as error:
            _say(f"whether another node has failed is not known: {error}")
            return False

    def cursor(self, workers: Sequence[Worker]) -> CursorRecord | None:
        """Return the cursor file's record where one of these workers writes it, None elsewhere."""
        place = self._place
        if place is None or not self.first_node:
            return None
        record = place.run_dir.last_cursor()
        mine = record and record.attempt == place.attempt
        return record if record and mine and record.pid in {w.pid for w in workers} else None

    def stalled(self, stall: Stall) -> None:
        """The training stands still, or has gone on."""
        data = {"begin": stall.begin_ns, **({"end": stall.end_ns} if stall.end_ns else {})}
        self._guarded(lambda: self._log and self._log.append(Kind.STALLED, data, rank=0))

    @property
    def first_node(self) -> bool:
        """Whether the first rank is on this node."""
        return self._place is None or self._place.node == 0

    @property
    def stacks(self) -> Path | None:
        """Where this node's stacks are written, None outside a launched job."""
        place = self._place
        return place and place.run_dir.stacks(place.attempt, place.node)

    def add_stacks(self, text: str) -> None:
        """Add to the node's stacks."""
        path = self.stacks
        if path is not None:
            self._guarded(lambda: _add(path, text))

    def stacks_size(self, node: int) -> int:
        """Return how long a node's stacks are, in bytes; 0 where there are none."""
        if self._place is None:
            return 0
        if self._shipper is not None and node != self._place.node:
            return self._first_stacks
        try:
            return self._place.run_dir.stacks(self._place.attempt, node).stat().st_size
        except OSError:
            return 0

    def ended(self, worker: Worker) -> None:
        """A worker has ended."""
        self._guarded(lambda: self._ended(worker))

    def end(self, workers: Sequence[Worker], first: Worker | None, sigterm_ns: int | None) -> None:
        """All workers have ended: write the reply, then the agent's own end."""
        self._guarded(lambda: self._end(workers, first, sigterm_ns))

    def _make_shipper(self, place: Place) -> Shipper:
        heartbeat = place.run_dir.heartbeat(place.attempt, place.node)
        return Shipper(place, _say, heartbeat=heartbeat, look=self._look_at_the_first_node)

    def _look_at_the_first_node(self, storage: Storage) -> None:
        """Ask now and then how long the first node's stacks are: it has them written at a stall."""
        place, now = self._place, time.monotonic()
        if place is None or place.node == 0 or now < self._peer_look:
            return
        self._peer_look = now + _PEER_LOOK_S
        stacks = place.run_dir.stacks(place.attempt, 0)
        self._first_stacks = int(storage.read(size_of(f"nodes/{stacks.name}")) or 0)

    def _begin(self) -> None:
        place = self._place
        if place is None:
            return
        writer = agent_writer(place.attempt, place.node, os.getpid())
        self._log = LogWriter(
            place.run_dir.nodes / f"{writer}.jsonl",
            job=place.context.key.id,
            writer=writer,
            attempt=place.attempt,
            first=place.first_number,
        )
        data = {
            "role": "agent",
            "pid": os.getpid(),
            "host": self._host,
            "node": place.node,
            "world_size": self._world_size,
        }
        self._log.append(Kind.PROCESS_STARTED, data, time_ns=process_start_ns())
        carry_over(place, self._log)

    def _ended(self, worker: Worker) -> None:
        if self._log is None or self._place is None:
            return
        self._copy_open_interval(self._log, self._place, worker)
        spent = self._ranks.ended(worker.rank) if self._ranks else None
        how = {"exit_code": worker.exit_code, "signal": worker.signal}
        if worker.failed:
            failure = {**how, **(read_error(worker.error_file) or {})}
            self._log.append(Kind.FAILURE, failure, time_ns=worker.end_ns, rank=worker.rank)
        data = {"role": "trainer", "pid": worker.pid, **how, **({"spent": spent} if spent else {})}
        self._log.append(Kind.PROCESS_ENDED, data, time_ns=worker.end_ns, rank=worker.rank)

    def _copy_open_interval(self, log: LogWriter, place: Place, worker: Worker) -> None:
        """Write the interval that a killed first rank left open in the cursor file."""
        record = read_cursor(place.run_dir.cursor)
        if record is None or (record.attempt, record.pid) != (place.attempt, worker.pid):
            return
        left = record.open_interval(place.context.key.id)
        if left is not None:
            log.copy(left)

    def _end(self, workers: Sequence[Worker], first: Worker | None, sigterm_ns: int | None) -> None:
        place = self._place
        if self._log is None or place is None:
            return
        reply = {
            "attempt": list(place.attempt),
            "node": place.node,
            "host": self._host,
            "ranks": [_rank(worker) for worker in workers],
            "first_failure_rank": first.rank if first else None,
            "sigterm_received_ns": sigterm_ns,
            "peer_failed": self._peer_failed,
            "oom_kills": _oom_kills() - self._oom_kills,
            "hung_since_ns": self.hung.begin_ns if self.hung else None,
        }
        _write(place.run_dir.reply(place.attempt, place.node), reply)
        code = first.shell_code if first else 0
        self._log.append(Kind.PROCESS_ENDED, {"role": "agent", "exit_code": code, "signal": None})

    def _guarded(self, act: Callable[[], object]) -> None:
        try:
            act()
        except (OSError, ValueError, TypeError, KeyError) as error:
            if not self._warned:
                self._warned = True
                _say(f"the run directory cannot be written: {error}")


def read_error(path: str) -> dict[str, str] | None:
    """Return type, message and traceback from a worker's error file, None where it left none.

    The Session and torch's ``@record`` write it, the latter with secrets.
    """
    try:
        message: Any = json.loads(Path(path).read_text())["message"]
        text = message["message"] if isinstance(message, Mapping) else message
        extra = message.get("extraInfo", {}) if isinstance(message, Mapping) else {}
        kind, _, rest = str(text).partition(": ")
        return told(kind, rest, str(extra.get("py_callstack", "")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _say(text: str) -> None:
    print(f"agent: {text}", file=sys.stderr, flush=True)


def _peer_failed(place: Place) -> bool:
    storage = place.log()
    names = [entry.name for entry in storage.entries("replies")]
    for name in (n for n in names if n.startswith(f"{place.attempt}-n") and n.endswith(".json")):
        reply = json.loads(storage.read(f"replies/{name}") or b"null")
        failed = reply["first_failure_rank"] is not None and not reply["sigterm_received_ns"]
        if failed and reply["node"] != place.node:
            return True
    return False


def _add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def _rank(worker: Worker) -> dict[str, Any]:
    return {
        "rank": worker.rank,
        "pid": worker.pid,
        "exit_code": worker.exit_code,
        "signal": worker.signal,
        "begin_ns": worker.begin_ns,
        "end_ns": worker.end_ns,
        "error": read_error(worker.error_file),
    }


def _oom_kills() -> int:
    """Return how often the kernel killed for memory in this process's control group (v2) so far."""
    try:
        group = Path("/proc/self/cgroup").read_text().partition("0::")[2].strip()
        counts = Path(f"/sys/fs/cgroup{group}/memory.events").read_text().split()
        return int(counts[counts.index("oom_kill") + 1])
    except (OSError, ValueError, IndexError):
        return 0


def _write(path: Path, reply: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{time.time_ns()}.tmp")
    with draft.open("w") as file:
        json.dump(reply, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
