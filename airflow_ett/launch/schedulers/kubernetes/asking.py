"""One question for all watched apps of a namespace, whoever asks, and a short memory of the answer.

Two requests tell of all of them: their jobs and their pods. Only of what that leaves open more is
asked, app by app: why one waits that has no pods yet, what became of pods that are gone. What is
over for good is not asked for again. Safe to use from several threads: those that ask meanwhile
wait for the answer that is under way.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from airflow_ett.errors import LaunchError
from airflow_ett.launch.schedulers.kubernetes.answers import (
    Job,
    Pod,
    Word,
    read_events,
    read_group,
    read_job,
    read_pod,
)
from airflow_ett.launch.schedulers.kubernetes.api import Api
from airflow_ett.launch.schedulers.kubernetes.states import OVER, Seen, ended_by, state_of

FRESH_S = 1.0
"""So old an answer may be."""

WATCHED_S = 600.0
"""An app that nobody has asked for since is not asked for with the others."""

_LATELY_NS = 600 * 1_000_000_000
"""What became of a pod is looked for in so long before its job ended: pods' names come again."""

_MOST_EVENTS = 4
"""Of so many pods that are gone it is asked what became of them: they mostly go together."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """When it was asked for, after how many changes, for which apps, and what came of it."""

    time_s: float
    changes: int
    asked: frozenset[str]
    apps: Mapping[str, Seen]
    away: LaunchError | None = None


@dataclass(slots=True)
class _Memory:
    """What was seen of an app: its pods stay, as they were, when they are gone.

    ``runs`` has them by run; ``gone`` what was found out about the ends of those that nobody saw
    end, by run.
    """

    runs: dict[int, dict[str, Pod]] = field(default_factory=dict)
    gone: dict[int, Word | None] = field(default_factory=dict)


class Asking:
    """Asks one namespace."""

    def __init__(
        self, api: Api, namespace: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._clock = clock
        self._asking = threading.Lock()
        self._watched: dict[str, float] = {}
        self._memories: dict[str, _Memory] = {}
        self._ended: dict[str, Seen] = {}
        self._answer: _Answer | None = None
        self._changes = 0

    def app(self, name: str) -> Seen | None:
        """Return what is known of an app, None where there is none of that name.

        Raises :class:`LaunchError` where the API server cannot be asked.
        """
        # An answer may take longer than it stays fresh, and many may wait for it.
        since_s, changes = self._clock(), self._changes
        with self._asking:
            self._watched[name] = self._clock()
            answer = self._answer
            if answer is None or not _serves(answer, name, since_s, changes):
                answer = self._answer = self._ask()
        if answer.away is not None:
            raise LaunchError(str(answer.away)) from answer.away.__cause__
        return answer.apps.get(name)

    def forget(self) -> None:
        """Have the next question asked anew: something has just been changed.

        An answer that is under way may tell of the time before.
        """
        self._changes += 1

    def _ask(self) -> _Answer:
        now_s, changes = self._clock(), self._changes
        self._watched = {
            app: asked_s for app, asked_s in self._watched.items() if now_s - asked_s < WATCHED_S
        }
        watched = frozenset(self._watched)
        self._memories = {app: self._memories.get(app, _Memory()) for app in watched}
        self._ended = {app: seen for app, seen in self._ended.items() if app in watched}
        open_ones = watched - self._ended.keys()
        try:
            jobs = [read_job(said) for said in self._api.jobs(self._namespace, open_ones)]
            pods = [read_pod(said) for said in self._api.pods(self._namespace, open_ones)]
            ours = {job.app: job for job in [*_deleted(pods), *jobs] if job.app in open_ones}
            apps = {app: self._seen(job, pods) for app, job in ours.items()}
        except LaunchError as error:
            return _Answer(now_s, changes, watched, {}, error)
        self._ended |= {app: seen for app, seen in apps.items() if seen.over}
        return _Answer(now_s, changes, watched, {**self._ended, **apps})

    def _seen(self, job: Job, pods: Iterable[Pod]) -> Seen:
        memory, run = self._memories[job.app], job.retries
        there = set()
        for pod in pods:
            if pod.app == job.app:
                own = run if pod.run is None else pod.run
                memory.runs.setdefault(own, {})[pod.name] = pod
                there.add(pod.name)
        kept = memory.runs.get(run, {})
        queued, state = None, state_of(job)
        if state in ("SUBMITTED", "PENDING") and not kept:
            queued = read_group(self._api.group(self._namespace, f"{job.app}-{job.uid}"))
        lately_ns = (job.changed_ns or 0) - _LATELY_NS
        return Seen(
            job,
            dict(kept),
            frozenset(there),
            queued,
            gone=self._gone(job, run, lately_ns) if state == "FAILED" else None,
            former=self._gone(job, run - 1, 0) if run else None,
        )

    def _gone(self, job: Job, run: int, since_ns: int) -> Word | None:
        """Return what is known of why a run ended, once it has; it is asked for once."""
        memory = self._memories[job.app]
        pods = memory.runs.get(run, {})
        if word := ended_by(list(pods.values())):
            return word
        if run not in memory.gone:
            missing = [task.pod for task in job.tasks if _untold(pods.get(task.pod))]
            memory.gone[run] = self._events(missing, since_ns)
        return memory.gone[run]

    def _events(self, pods: Iterable[str], since_ns: int) -> Word | None:
        for pod in itertools.islice(pods, _MOST_EVENTS):
            with contextlib.suppress(LaunchError):  # not everybody has the right to read them
                if word := read_events(self._api.events(self._namespace, pod), since_ns):
                    return word
        return None


def _serves(answer: _Answer, name: str, since_s: float, changes: int) -> bool:
    """Tell whether an answer is one to what was asked at ``since_s``, after so many changes."""
    young = since_s - answer.time_s < FRESH_S
    return name in answer.asked and young and answer.changes >= changes


def _deleted(pods: Iterable[Pod]) -> Iterator[Job]:
    """Yield a job for each pod that lives, to stand for one that somebody has deleted.

    Its pods have their grace yet: until then another training must not begin in its place.
    """
    for pod in pods:
        if pod.phase not in OVER:
            text = "it was deleted, and its pods have not ended yet"
            yield Job(pod.app, "", "Terminating", text, pod.run or 0, None, ())


def _untold(pod: Pod | None) -> bool:
    return pod is None or pod.exit_code is None
