"""What must hold of every training, whatever was done to it. Each check returns what does not."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

from airflow_ett.checkpoints import list_checkpoints
from airflow_ett.checkpoints.layout import LEASE
from airflow_ett.events import AttemptId, Cause, Event, JobState, Kind
from airflow_ett.launch.schedulers.processes import Process
from airflow_ett.metric import measure
from tests.system.chaos.driver import Blow, Drive
from tests.system.chaos.plan import FATAL, IN_A_TASK, NODE, STOPPED, Target
from tests.system.chaos.targets import read
from tests.system.chaos.view import View

_SECOND = 1_000_000_000
_LATE_NS, _UNTOLD_NS = 2 * _SECOND, 30 * _SECOND
_TELLING = IN_A_TASK | {Target.SCHEDULER, Target.TRIGGERER, Target.MARK_FAILED}
_USERS = {Cause.USER_RESTART: Target.CLEAR, Cause.USER_CANCELLED: Target.MARK_FAILED}
_LOSERS = {
    # A batch script's end has Slurm send the others SIGTERM.
    Cause.INFRASTRUCTURE: {*FATAL - {Target.PREEMPT}, Target.SLURMD, Target.SLURMCTLD},
    Cause.PREEMPTED: {Target.PREEMPT, Target.BATCH, Target.SLURMCTLD},
    Cause.VANISHED: {Target.SLURMCTLD},
    Cause.LAUNCH: {Target.SLURMCTLD},
}
"""By cause, what explains it. A node's loss and a preemption hit whoever is on the node.

A slurmctld that is killed has not saved its last seconds: it forgets jobs, whose numbers come
again, and begins others again that run, which it then ends."""

_HARMLESS = {"guard", "daemon", STOPPED}
_AMNESIA_NS = 60 * _SECOND
"""So long after its end is felt what slurmctld has forgotten."""

_LEASE_NS = 12 * _SECOND
"""So long it takes a trainer, with a margin, to notice that another has taken the lease."""


def duplicates(done: Drive) -> Iterator[str]:
    """Never two trainers at once: their own lock, the lease, and the times that they worked.

    A slurmctld that was killed may begin again what runs, or what was already followed by another:
    then the lease has the older one stop.
    """
    for line in done.view.wrong():
        if "overlaps" in line and not _forgotten(done, int(line.split()[1])):
            yield line
    starts, begun = done.view.begins(), len(done.view.attempts())
    leases = [int(p.stem) for p in (done.view.run_dir.checkpoints / LEASE).glob("*.json")]
    if len(leases) > 1 or (leases and leases[0] > max(begun, len(starts))):
        yield f"leases {leases} of {begun} attempts"
    seen = set[str]()
    for time_ns, attempt in starts:
        if attempt in seen and not _forgotten(done, time_ns):
            yield f"another trainer of attempt {attempt}"
        seen.add(attempt)
    spans: dict[AttemptId, tuple[int, int]] = {}
    for event in done.view.events(Kind.INTERVAL):
        if event.attempt is not None:
            begin, end = spans.get(event.attempt, (event.data["from"], event.data["to"]))
            spans[event.attempt] = (min(begin, event.data["from"]), max(end, event.data["to"]))
    ordered = sorted(spans.items())
    for (earlier, (_, end)), (later, (begin, _)) in itertools.pairwise(ordered):
        if begin < end - (_LEASE_NS if _forgotten(done, begin) else 0):
            yield f"attempt {later} trained while {earlier} did"


def orphans(done: Drive, living: Iterable[Process]) -> Iterator[str]:
    """No process of a job that has ended still lives: app, agent, trainer, supervisor, task."""
    view = done.view
    folder = str(view.run_dir.path)
    for process in living:
        command, environ = _read(process.pid, "cmdline"), _read(process.pid, "environ")
        apps = any(f"{view.home}/ett/{name}/" in command for name in ("local", "slurm"))
        if folder in environ or str(view.place) in command or apps:
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
    last = _last_cause(view)
    if marked and last in _LOSERS:
        # The mark fell between an attempt and its relaunch, and only the reaper saw it.
        right.append((JobState.FAILED, last))
    if not (marked and not view.begun()) and (len(ended) != 1 or ended[0] not in right):
        yield f"the job's log ends with {ended}, not once with {right[0]}"
    over = Counter(e.attempt[:2] for e in _ended(view) if e.attempt)
    unseen = _unseen(view)
    wrong = [run for run in view.attempts() if over[run] != 1 and run != unseen]
    yield from (f"attempt {n}.{run} has {over[n, run]} ends" for n, run in wrong)


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
    unseen = _unseen(view)
    for pid, attempt, _ in view.starts():
        closed = unseen is None or attempt != f"{AttemptId(*unseen)}"
        if closed and view.trained(pid) > told[attempt]:
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
    begun = {e.data["submission"]: e.time_ns for e in done.view.events(Kind.SUBMIT_INTENDED)}
    causes: dict[int, list[Cause]] = defaultdict(list)
    for event in sorted(_ended(done.view), key=_time):
        if event.data["cause"] is None or event.attempt is None:
            continue
        cause, attempt = Cause(event.data["cause"]), event.attempt
        causes[attempt.submission].append(cause)
        begin, end = begun.get(attempt.submission, 0), event.time_ns
        if cause in _USERS:
            # A trigger may start anew, and submit, before Airflow tells it of the user.
            near = _between(done.blows, begin - _UNTOLD_NS, end)
            explained = any(b.injection.target is _USERS[cause] for b in near)
        else:
            near = _between([*done.blows, *done.beside], begin, end)
            began = str(attempt) in {name for _, name in done.view.begins()}
            forgotten = Target.SLURMCTLD in _LOSERS.get(cause, ()) and _forgotten(done, begin)
            explained = forgotten or any(_explains(b, cause, began) for b in near)
        if not explained:
            yield f"attempt {attempt} ended by {cause}, which nothing done to it explains"
    ended = {e.attempt.submission for e in _ended(done.view) if e.attempt}
    for blow in done.blows:
        known = blow.submission in ended and not _forgotten(done, blow.time_ns)
        if _kills(blow) and known and not causes[blow.submission]:
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


def _unseen(view: View) -> tuple[int, int] | None:
    """Return the attempt that a user's mark has ended, whose end nobody waited for that long.

    Its node may be lost, so that Slurm calls it running for another while.
    """
    last = max(view.attempts(), default=None)
    cancelled = {e.data["submission"] for e in view.events(Kind.CANCEL_REQUESTED)}
    ended = {event.attempt[:2] for event in _ended(view) if event.attempt}
    left = view.course.marked and last is not None and last not in ended
    return last if left and last is not None and last[0] in cancelled else None


def _last_cause(view: View) -> str | None:
    ended = sorted(_ended(view), key=_time)
    return ended[-1].data["cause"] if ended else None


def _time(event: Event) -> int:
    return event.time_ns


def _between(blows: Iterable[Blow], begin: int, end: int) -> list[Blow]:
    return [b for b in blows if begin - _LATE_NS <= b.time_ns <= end + _LATE_NS]


def _forgotten(done: Drive, time_ns: int) -> bool:
    """Whether slurmctld may have begun again what ran then, as if it never had before."""
    return any(
        blow.injection.target is Target.SLURMCTLD
        and blow.injection.variant not in _HARMLESS
        and -_LATE_NS <= time_ns - blow.time_ns <= _AMNESIA_NS
        for blow in [*done.blows, *done.beside]
    )


def _explains(blow: Blow, cause: Cause, began: bool) -> bool:
    """Whether a blow accounts for the end of an attempt whose trainer ``began``, or did not."""
    target, variant = blow.injection.target, blow.injection.variant
    launching = variant == "daemon" and not began  # without a slurmd no step comes about
    return target in _LOSERS.get(cause, ()) and (variant not in _HARMLESS or launching)


def _kills(blow: Blow) -> bool:
    """Whether it ends the attempt that was the newest then."""
    target, variant = blow.injection.target, blow.injection.variant
    return (target in FATAL and variant != "guard") or variant == NODE


def _read(pid: int, name: str) -> str:
    return read(pid, name).replace("\0", " ").strip()
