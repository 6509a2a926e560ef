"""A job's log, told by moving a clock: what launcher, agents and trainer would have written."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from airflow_ett.events import AttemptId, JobKey, Kind, LogWriter, RunDir, trainer_writer

SECOND = 10**9
RATE = 41_200
"""Samples a second."""

_GIB = 2**30
_LOST = "lost"


@dataclass(frozen=True, slots=True)
class _Line:
    writer: str
    kind: str
    data: dict[str, Any]
    time_ns: int
    attempt: AttemptId | None
    rank: int | None


class Story:
    """One job. Every method takes seconds and moves ``now_ns``; :meth:`write` makes the log."""

    def __init__(self, key: JobKey, begin_ns: int, *, accelerators: int = 32) -> None:
        self.key = key
        self.now_ns = begin_ns
        self.accelerators = accelerators
        self.attempt = AttemptId(0)
        self.cursor = self.mark = self._try = self._spans = 0
        self._advanced = False
        self._lines: list[_Line] = []
        self._commits: list[tuple[int, int]] = []
        opened = {"key": asdict(key), "scheduler": "slurm", "accelerators": accelerators}
        self._launcher(Kind.JOB_OPENED, opened)

    def submit(self, layer: str = "first") -> None:
        """Ask the scheduler; ``layer`` is ``first``, ``relaunch`` or ``airflow``."""
        number = self.attempt.submission + 1
        self.attempt = AttemptId(number)
        self._try += layer != "relaunch"
        handle = f"slurm://torchx/{418_800 + number}"
        told = {"submission": number, "app": f"{418_800 + number}", "handle": handle}
        self._launcher(Kind.SUBMITTED, told | {"layer": layer, "try": self._try})

    def requeue(self) -> None:
        """The scheduler begins the app again."""
        submission, restart, _ = self.attempt
        self.attempt = AttemptId(submission, restart + 1)

    def restart(self) -> None:
        """The agents begin the trainers again, on the same nodes."""
        submission, restart, elastic = self.attempt
        self.attempt = AttemptId(submission, restart, elastic + 1)

    def allocate(self, queue: float, setup: float) -> None:
        """Wait in the queue, then for the nodes."""
        submission, restart, _ = self.attempt
        told = {"submission": submission, "restart": restart}
        self._launcher(Kind.SCHEDULER_STATE, told | {"state": "PENDING"})
        self.pass_(queue)
        running = {"state": "RUNNING", "allocated_ns": self.now_ns, "log": "/logs/rank0.out"}
        self._launcher(Kind.SCHEDULER_STATE, told | running)
        self.pass_(setup)

    def boot(self, host: str, launcher_init: float) -> None:
        """Start rank 0's process and its Session."""
        self._advanced = False
        process = {"role": "trainer", "pid": 4_000, "host": host, "node": 0, "world_size": 32}
        self._trainer(Kind.PROCESS_STARTED, process)
        self.pass_(launcher_init)
        self._trainer(Kind.SESSION_STARTED, {"cursor_hwm": self.mark, "torch": "2.11.1"})

    def pass_(self, seconds: float) -> None:
        self.now_ns += round(seconds * SECOND)

    def phase(self, name: str, seconds: float) -> None:
        span = self._begin(name, "main", self.now_ns)
        self.pass_(seconds)
        self._trainer(Kind.PHASE_END, {"span": span})

    def open_phase(self, name: str, seconds: float) -> None:
        """Begin a phase that does not end."""
        self._begin(name, "main", self.now_ns)
        self.pass_(seconds)

    def compile(self, graph: str, seconds: float, *, hit: bool, reason: str | None = None) -> None:
        """Compile a graph, or load it from the cache."""
        self.phase("compile_cache_load" if hit else "compile", seconds)
        told = {"id": graph, "duration_ns": round(seconds * SECOND), "reason": reason}
        self._trainer(Kind.COMPILE, told | {"hits": int(hit), "misses": int(not hit)})

    def lever(self, name: str, outcome: str, reason: str | None = None, **facts: int) -> None:
        """Tell what became of a lever; ``facts`` are ``duration_ns`` and ``bytes``."""
        told = {"lever": name, "outcome": outcome, "reason": reason}
        self._trainer(Kind.LEVER, told | facts)

    def resume(self, seconds: float) -> None:
        """Restore the newest checkpoint that was committed by now."""
        self.phase("checkpoint_restore", seconds)
        self.cursor = max((cursor for at, cursor in self._commits if at <= self.now_ns), default=0)
        told = {"checkpoint": self._uri(self.cursor), "cursor": self.cursor, "hwm": self.mark}
        self._trainer(Kind.RESUMED, told)

    def train(self, seconds: float, *, every: float = 600, wait: float = 0.01) -> None:
        """Step; an interval lasts ``every`` seconds, ``wait`` is the share that waits for data."""
        left = round(seconds * SECOND)
        while left > 0:
            length = min(left, round(every * SECOND))
            speed = RATE * (1 - wait)
            to_mark = round((self.mark - self.cursor) / speed * SECOND)
            if 0 < to_mark < length:
                length = to_mark
            elif to_mark <= 0 and not self._advanced:
                # The first step that passes the mark has an interval of its own.
                length, self._advanced = min(length, SECOND), True
            begin, self.now_ns, left = self.now_ns, self.now_ns + length, left - length
            first = self.cursor
            self.cursor = self.mark if length == to_mark else first + int(length * speed / SECOND)
            self.mark = max(self.mark, self.cursor)
            waited = int(length * wait)
            interval = {"from": begin, "to": self.now_ns, "cursor_from": first}
            interval |= {"cursor_to": self.cursor, "steps": max(1, length // SECOND)}
            interval |= {"step_ns": length - waited, "wait_ns": waited, "other_ns": 0}
            self._trainer(Kind.INTERVAL, interval)

    def lose(self, seconds: float) -> None:
        """Train without a trace: the event gets lost."""
        self.pass_(seconds)
        self._trainer(_LOST, {})

    def save(self, blocking: float, upload: float, *, anchor: bool = False) -> None:
        """Save a checkpoint; it is committed once ``upload`` has passed, if nothing fails first."""
        self.phase("checkpoint_save", blocking)
        saved = {"checkpoint": self._uri(self.cursor), "cursor": self.cursor}
        self._trainer(Kind.CHECKPOINT_SAVED, saved | {"blocking_ns": round(blocking * SECOND)})
        upload_ns = round(upload * SECOND)
        done = self.now_ns + upload_ns
        span = self._begin("upload", "upload", self.now_ns)
        self._trainer(Kind.PHASE_END, {"span": span}, done)
        facts = {"bytes": 42 * _GIB, "upload_ns": upload_ns, "anchor": anchor}
        self._trainer(Kind.CHECKPOINT_COMMITTED, saved | facts, done)
        self._commits.append((done, self.cursor))

    def ranks(self, spent: Sequence[dict[str, float]]) -> None:
        """Let the agents tell what their ranks 1, 2, … spent, in seconds by phase."""
        for rank, phases in enumerate(spent, start=1):
            told = {name: round(seconds * SECOND) for name, seconds in phases.items()}
            wait_ns = told.pop("data_wait", 0)
            data = {"phases": told, "steps": 9, "step_ns": SECOND, "wait_ns": wait_ns}
            ended = {"role": "trainer", "exit_code": 0, "spent": data}
            self._tell("agent", Kind.PROCESS_ENDED, ended, self.now_ns, rank)

    def fail(self, cause: str, detection: float, text: str, **evidence: Any) -> None:
        """Let a rank die now, and the launcher find out; what is under way is lost."""
        self._cut_short()
        self._trainer(Kind.FAILURE, {"exit_code": 1, "message": text})
        self.pass_(detection)
        proof = {"text": text, "source": "reply", "exit_code": 1, **evidence}
        self._launcher(Kind.ATTEMPT_ENDED, {"cause": cause, "evidence": proof})

    def finish(self) -> None:
        """Let the Session end well, and the job with it."""
        self._trainer(Kind.SESSION_ENDED, {"outcome": "success", "cursor": self.cursor})
        self.pass_(8)
        self._trainer(Kind.PROCESS_ENDED, {"role": "trainer", "exit_code": 0})
        self.end("succeeded")

    def end(self, state: str, cause: str | None = None) -> None:
        """End the job; the trainer tells nothing of it."""
        if state == "succeeded":
            self._launcher(Kind.ATTEMPT_ENDED, {"cause": None})
        self._launcher(Kind.JOB_ENDED, {"state": state, "cause": cause})

    def publish(
        self,
        version: str = "184",
        uri: str = "models://ranker/184",
        *,
        seconds: float = 300,
        existed: bool = False,
    ) -> None:
        """Publish the newest checkpoint on a CPU, beside the job."""
        begin = self.now_ns
        self.pass_(seconds)
        told = {"version": version, "uri": uri, "begin": begin, "end": self.now_ns}
        told |= {"name": "ranker", "registry": "models://", "bytes": 14 * _GIB}
        checkpoint = {"checkpoint": self._uri(self.cursor), "cursor": self.cursor}
        self._launcher(Kind.PUBLISHED, told | checkpoint | {"existed": existed})

    def live(self) -> None:
        """Forget what would come after now: the job goes on."""
        self._cut_short()

    def write(self, root: Path) -> RunDir:
        """Append what was told since the last call to the job's log below ``root``."""
        run = RunDir(root / self.key.path)
        writers: dict[str, LogWriter] = {}
        for line in sorted(self._lines, key=attrgetter("time_ns")):
            log = writers.get(line.writer) or self._open(run, line.writer)
            writers[line.writer] = log
            if line.kind == _LOST:
                log.next_seq += 1
                continue
            log.append(
                line.kind, line.data, time_ns=line.time_ns, attempt=line.attempt, rank=line.rank
            )
        for log in writers.values():
            log.close()
        self._lines.clear()
        return run

    def _open(self, run: RunDir, writer: str) -> LogWriter:
        folder = run.launcher if writer == "launcher" else run.nodes
        return LogWriter(folder / f"{writer}.jsonl", job=self.key.id, writer=writer)

    def _cut_short(self) -> None:
        self._lines = [line for line in self._lines if line.time_ns <= self.now_ns]
        self._commits = [commit for commit in self._commits if commit[0] <= self.now_ns]

    def _uri(self, cursor: int) -> str:
        return f"s3://training/{self.key.dag_id}/{cursor}"

    def _begin(self, name: str, lane: str, time_ns: int) -> int:
        self._spans += 1
        told = {"span": self._spans, "phase": name, "lane": lane}
        self._trainer(Kind.PHASE_BEGIN, told, time_ns)
        return self._spans

    def _launcher(self, kind: str, data: dict[str, Any]) -> None:
        attempt = self.attempt if self.attempt.submission else None
        self._lines.append(_Line("launcher", kind, data, self.now_ns, attempt, None))

    def _trainer(self, kind: str, data: dict[str, Any], time_ns: int | None = None) -> None:
        at = self.now_ns if time_ns is None else time_ns
        self._tell(trainer_writer(self.attempt, 0, 4_000), kind, data, at, 0)

    def _tell(self, writer: str, kind: str, data: dict[str, Any], at: int, rank: int) -> None:
        self._lines.append(_Line(writer, kind, data, at, self.attempt, rank))
