"""What must hold of every training, whatever was done to it. Each check returns what does not."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from airflow_ett.checkpoints import list_checkpoints
from airflow_ett.checkpoints.layout import LEASE
from airflow_ett.demo.processes import of_stack
from airflow_ett.events import AttemptId, Cause, Event, JobState, Kind
from airflow_ett.metric import measure
from tests.system.chaos.driver import Blow, Drive
from tests.system.chaos.plan import FATAL, IN_A_TASK, Target
from tests.system.chaos.view import View

_SECOND = 1_000_000_000
_LATE_NS, _UNTOLD_NS = 2 * _SECOND, 30 * _SECOND
_TELLING = IN_A_TASK | {Target.SCHEDULER, Target.TRIGGERER, Target.MARK_FAILED}
_USERS = {Cause.USER_RESTART: Target.CLEAR, Cause.USER_CANCELLED: Target.MARK_FAILED}


def duplicates(done: Drive) -> Iterator[str]:
    """Never two trainers at once: their own lock, the lease, and the times that they worked."""
    yield from (line for line in done.view.wrong() if "overlaps" in line)
    starts = done.view.starts()
    submissions = len(done.view.events(Kind.SUBMIT_INTENDED))
    leases = [int(p.stem) for p in (done.view.run_dir.checkpoints / LEASE).glob("*.json")]
    if len(leases) > 1 or (leases and leases[0] > submissions):
        yield f"leases {leases} of {submissions} submissions"
    attempts = Counter(attempt for _, attempt, _ in starts)
    yield from (f"{n} trainers of attempt {a}" for a, n in attempts.items() if n > 1)
    spans: dict[AttemptId, tuple[int, int]] = {}
    for event in done.view.events(Kind.INTERVAL):
        if event.attempt is not None:
            begin, end = spans.get(event.attempt, (event.data["from"], event.data["to"]))
            spans[event.attempt] = (min(begin, event.data["from"]), max(end, event.data["to"]))
    ordered = sorted(spans.items())
    for (earlier, (_, end)), (later, (begin, _)) in itertools.pairwise(ordered):
        if begin < end:
            yield f"attempt {later} trained while {earlier} did"


def orphans(done: Drive, home: Path) -> Iterator[str]:
    """No process of a job that has ended still lives: app, agent, trainer, supervisor, task."""
    view = done.view
    folder = str(view.run_dir.path)
    for process in of_stack(home):
        command, environ = _read(process.pid, "cmdline"), _read(process.pid, "environ")
        if folder in environ or str(view.place) in command or f"{view.app_dirs}/" in command:
            yield f"process {process.pid} lives: {command}"


def tasks(done: Drive) -> Iterator[str]:
    """No task process that ever claimed the job still lives."""
    for event in done.view.events(Kind.CLAIMED):
        pid = int(str(event.data["owner"]).rpartition(":")[2])
        title = _read(pid, "cmdline")
        if event.data["mode"] == "task" and title.startswith("airflow worker -- "):
            yield f"task process {pid} of try {event.data['try']} lives: {title}"


def ends(done: Drive) -> Iterator[str]:
    """Airflow and the job's log agree on how it ended; every attempt has an end of its own."""
    view = done.view
    if done.problem:
        yield done.problem
    marked = view.course.marked
    wanted = "failed" if marked else "success"
    if done.state != wanted:
        yield f"Airflow's run is {done.state or 'not over'}, not {wanted}"
    ended = [(e.data["state"], e.data["cause"]) for e in view.events(Kind.JOB_ENDED)]
    right = [(JobState.CANCELLED, Cause.USER_CANCELLED) if marked else (JobState.SUCCEEDED, None)]
    if marked and _last_cause(view) == Cause.INFRASTRUCTURE:
        # The mark fell between an attempt and its relaunch, and only the reaper saw it.
        right.append((JobState.FAILED, Cause.INFRASTRUCTURE))
    if not (marked and not view.begun()) and (len(ended) != 1 or ended[0] not in right):
        yield f"the job's log ends with {ended}, not once with {right[0]}"
    begun = {e.data["submission"] for e in view.events(Kind.SUBMIT_INTENDED)}
    over = Counter(e.attempt.submission for e in _ended(view) if e.attempt)
    yield from (f"submission {n} has {over[n]} ends" for n in sorted(begun) if over[n] != 1)


def lost_events(done: Drive) -> Iterator[str]:
    """No number is missing in a log, no line is torn but a last one, no step is untold.

    A trainer that is killed between two steps leaves a number that it had kept for the next
    interval: nothing was lost by that.
    """
    view = done.view
    ended = {event.writer for event in view.events(Kind.SESSION_ENDED)}
    numbers: dict[str, set[int]] = defaultdict(set)
    for chunk in view.chunks().values():
        yield from (f"{bad.path.name} at {bad.offset}: {bad.problem}" for bad in chunk.bad)
        for event in chunk.events:
            numbers[event.writer].add(event.seq)
    for writer, seen in numbers.items():
        missing = set(range(max(seen) + 1)) - seen
        kept = 1 if writer.startswith("trainer-") and writer not in ended else 0
        if len(missing) > kept:
            yield f"{writer} lacks {sorted(missing)} of {max(seen) + 1}"
    told: dict[str, int] = defaultdict(int)
    for event in view.events(Kind.INTERVAL):
        told[str(event.attempt)] = max(told[str(event.attempt)], int(event.data["cursor_to"]))
    for pid, attempt, _ in view.starts():
        if view.trained(pid) > told[attempt]:
            yield f"attempt {attempt} came to {view.trained(pid)}, its log to {told[attempt]}"


def measures(done: Drive) -> Iterator[str]:
    """All events together measure to sums that are exact, and to failures that were done."""
    if not done.view.begun():
        return
    metric = measure(done.view.events())
    for sums in (metric.phases_ns, metric.levels_ns):
        if sum(sums.values()) != metric.wall_ns:
            yield f"the parts sum to {sum(sums.values())} ns, the wall clock is {metric.wall_ns}"
    failed = [e for e in _ended(done.view) if e.data["cause"] and e.data["cause"] not in _USERS]
    if metric.nof != len(failed):
        yield f"NoF is {metric.nof}, but {len(failed)} attempts failed"
    for event in done.view.events(Kind.JOB_ENDED):
        if metric.state != event.data["state"]:
            yield f"the metric calls the job {metric.state}, its log {event.data['state']}"


def verdicts(done: Drive) -> Iterator[str]:
    """Each attempt's cause is what was done to it, and what was done to it has its effect."""
    causes = {e.attempt.submission: e.data["cause"] for e in _ended(done.view) if e.attempt}
    begun = {e.data["submission"]: e.time_ns for e in done.view.events(Kind.SUBMIT_INTENDED)}
    finished = {e.attempt.submission: e.time_ns for e in _ended(done.view) if e.attempt}
    for number, cause in sorted(causes.items()):
        if cause is None:
            continue
        begin, end = begun.get(number, 0), finished[number]
        if cause in _USERS:
            # A trigger may start anew, and submit, before Airflow tells it of the user.
            near = _between(done.blows, begin - _UNTOLD_NS, end)
            explained = any(b.injection.target is _USERS[Cause(cause)] for b in near)
        else:
            near = _between(done.blows, begin, end)
            explained = cause == Cause.INFRASTRUCTURE and any(_kills(b) for b in near)
        if not explained:
            yield f"submission {number} ended by {cause}, which nothing done to it explains"
    for blow in done.blows:
        if _kills(blow) and causes.get(blow.submission, "") is None:
            yield f"{blow.injection} killed submission {blow.submission}, which succeeded"


def clears(done: Drive) -> Iterator[str]:
    """A clear restarts the training, unless what was to tell of it was killed around that time.

    Airflow tells of a clear only the process, or the trigger, that watches; a later try knows of it
    by ``max_tries``, which grows once the task's process has ended in good order.
    """
    told = [event.time_ns for event in done.view.events(Kind.USER_RESTART)]
    for blow in done.blows:
        if blow.injection.target is not Target.CLEAR or not blow.submission:
            continue
        silenced = [
            other
            for other in [*done.blows, *done.beside]
            if other.injection.target in _TELLING
            and -25 * _SECOND <= other.time_ns - blow.time_ns <= 15 * _SECOND
        ]
        if not silenced and not any(0 <= t - blow.time_ns <= 60 * _SECOND for t in told):
            yield f"{blow.injection} did not restart submission {blow.submission}"


def cancels(done: Drive) -> Iterator[str]:
    """At most one request to cancel for each submission."""
    asked = Counter(e.data["submission"] for e in done.view.events(Kind.CANCEL_REQUESTED))
    yield from (
        f"submission {n} was cancelled {count} times" for n, count in asked.items() if count > 1
    )


def progress(done: Drive) -> Iterator[str]:
    """No committed checkpoint was lost, and a training that was not marked got to its goal."""
    view = done.view
    yield from (line for line in view.wrong() if "overlaps" not in line)
    committed = 0
    for event in sorted(view.events(Kind.CHECKPOINT_COMMITTED, Kind.RESUMED), key=_time):
        cursor = int(event.data["cursor"])
        if event.kind == Kind.RESUMED and cursor < committed:
            yield f"attempt {event.attempt} resumed at {cursor}, though {committed} was committed"
        committed = max(committed, cursor)
    saved = max((c.cursor for c in list_checkpoints(str(view.run_dir.checkpoints))), default=0)
    if saved < committed:
        yield f"the newest checkpoint is at {saved}, though {committed} was committed"
    for (_, before, first), (_, after, second) in itertools.pairwise(view.starts()):
        if second < first:
            yield f"attempt {after} began at {second}, {before} before it at {first}"
    if not view.course.marked and saved != view.goal():
        yield f"the training ended at {saved}, its goal was {view.goal()}"


CHECKS: dict[str, Callable[[Drive], Iterator[str]]] = {
    "duplicate trainers": duplicates,
    "wrong ends": ends,
    "lost events": lost_events,
    "wrong numbers": measures,
    "wrong verdicts": verdicts,
    "lost clears": clears,
    "repeated cancels": cancels,
    "lost progress": progress,
}
"""By the name under which the tally counts what they find. Orphans are looked for beside them."""


def _ended(view: View) -> list[Event]:
    return view.events(Kind.ATTEMPT_ENDED)


def _last_cause(view: View) -> str | None:
    ended = sorted(_ended(view), key=_time)
    return ended[-1].data["cause"] if ended else None


def _time(event: Event) -> int:
    return event.time_ns


def _between(blows: Iterable[Blow], begin: int, end: int) -> list[Blow]:
    return [b for b in blows if begin - _LATE_NS <= b.time_ns <= end + _LATE_NS]


def _kills(blow: Blow) -> bool:
    return blow.injection.target in FATAL and blow.injection.variant != "guard"


def _read(pid: int, name: str) -> str:
    try:
        content = Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return ""
    return content.replace(b"\0", b" ").decode(errors="replace").strip()
