"""One job's events in, at any time and in any order; its numbers out, at any time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from airflow_ett.events import Event
from airflow_ett.metric.account.account import Account
from airflow_ett.metric.account.numbers import numbers
from airflow_ett.metric.account.saves import Saves
from airflow_ett.metric.account.stretches import union
from airflow_ett.metric.clock.attempts import Attempt, begin_of, place, settle, settle_last
from airflow_ett.metric.clock.job import Job, read_job
from airflow_ett.metric.evidence.attempt import Evidence
from airflow_ett.metric.evidence.fields import FOREVER, Notes
from airflow_ett.metric.evidence.intake import Intake
from airflow_ett.metric.phases import COMPONENTS, Components
from airflow_ett.metric.result import JobMetric
from airflow_ett.metric.timeline.trace import Stretch, Timeline, Tracer


class Fold:
    """The numbers of one job, kept up to date as its events come in.

    An event that comes in order costs the same however long the job is; one that tells of an
    earlier time makes its attempt be folded again. The order of the events, how they are portioned,
    copies of them and looks in between never change a result.
    """

    def __init__(self, *, components: Components = COMPONENTS) -> None:
        self._components = components
        self._intake = Intake()
        self._saves = Saves()
        self._traces: dict[Evidence, _Trace] = {}
        self._past: _Past | None = None

    def add(self, events: Iterable[Event]) -> None:
        """Take events of the job, in any order, copies allowed; nothing raises.

        Of two events under one number the later one counts.
        """
        self._intake.add(events)

    def measure(
        self,
        *,
        now_ns: int | None = None,
        last_sign_ns: int | None = None,
        exclude: Iterable[Stretch] = (),
    ) -> JobMetric:
        """Return the job's numbers as of all that was added.

        ``now_ns`` is the present (None: the newest event's time) and ``last_sign_ns`` the newest
        heartbeat that the caller saw; both matter only until the job's terminal event is in.
        ``exclude`` are stretches of planned maintenance, begin and end in ns: their time leaves
        numerator and denominator.
        """
        intake = self._intake
        intake.arrange()
        excluded = union(exclude, 0, FOREVER)
        if self._past is None or not self._past.still_holds(intake, excluded):
            self._past = self._look_back(_Past(intake, excluded))
        past = self._past
        notes = past.notes | intake.notes()
        job = replace(past.job, newest_ns=intake.newest_ns)
        account = past.account.copy()
        if past.places:
            last = settle_last(past.places[-1], job, now_ns=now_ns, last_sign_ns=last_sign_ns)
            account.take(self._traces[last.evidence].timeline(last, job, past.hwm))
        self._saves.update(past.seen)
        return numbers(job, account, self._saves, self._components, notes)

    def _look_back(self, past: _Past) -> _Past:
        """Take stock of all attempts but the last."""
        traces, self._traces = self._traces, {}
        for evidence in past.seen:
            self._traces[evidence] = traces.get(evidence) or _Trace(self._components)
        for attempt in past.attempts():
            timeline = self._traces[attempt.evidence].timeline(attempt, past.job, past.hwm)
            past.account.take(timeline)
            past.hwm = timeline.walk.hwm
        return past


class _Past:
    """The job up to its last attempt: only what the launcher says, or late news, changes it."""

    def __init__(self, intake: Intake, excluded: list[Stretch]) -> None:
        intake.stirred = False
        self.notes: Notes = set()
        self.job = read_job(intake, self.notes)
        self.seen = [intake.attempts[name] for name in sorted(intake.attempts)]
        self.places = place(self.seen, intake.told, self.notes)
        self.account = Account(excluded)
        self.hwm = self.job.inherited_hwm

    def still_holds(self, intake: Intake, excluded: list[Stretch]) -> bool:
        """Say whether all that came in since belongs to the last attempt and moves no begin."""
        return (
            not intake.stirred
            and intake.has_trainer == self.job.has_trainer
            and excluded == self.account.excluded
            and not any(evidence.touched for evidence in self.seen[:-1])
            and all(begin_of(place.evidence, set()) == place.told_ns for place in self.places[-1:])
        )

    def attempts(self) -> list[Attempt]:
        """Return the attempts that another one follows."""
        return [
            settle(place, self.job, following.begin_ns, last=False)
            for place, following in pairwise(self.places)
        ]


class _Trace:
    """One attempt's timeline, made anew only when something of it has changed."""

    def __init__(self, components: Components) -> None:
        self._tracer = Tracer(components)
        self._basis: tuple[object, ...] = ()
        self._timeline: Timeline | None = None

    def timeline(self, attempt: Attempt, job: Job, hwm: int) -> Timeline:
        """Return the attempt's timeline, with ``hwm`` the high-water mark of those before it."""
        basis = (attempt, hwm, job.local, job.has_trainer, job.ended_ns is None)
        if self._timeline is None or attempt.evidence.touched or basis != self._basis:
            self._timeline = self._tracer.trace(attempt, job, hwm)
            self._basis = basis
            attempt.evidence.touched = False
        return self._timeline
