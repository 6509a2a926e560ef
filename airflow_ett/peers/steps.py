"""From step starts to intervals: a step lasts until the next one, less the phases within it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airflow_ett.events import Event, JobState, Kind
from airflow_ett.peers.reading import Problem, Told
from airflow_ett.peers.retelling import Retelling

MAIN = "main"


@dataclass(slots=True)
class _Step:
    """A step that has begun: ``from_ns`` is where its untold rest begins."""

    attempt: int
    number: int
    begin_ns: int
    from_ns: int
    own_ns: int = 0


@dataclass(frozen=True, slots=True)
class _Left:
    """The last step of an attempt, whose end nobody told: how long the one before it took, where
    known, and when the next attempt began.
    """

    step: _Step
    length_ns: int | None
    until_ns: int


@dataclass(slots=True)
class _Lengths:
    """Step time of an attempt: of its first step, and of the others. ``rest`` is what of the first
    one is still to be told.
    """

    first_ns: int = 0
    rest: tuple[int, int, tuple[int, int]] | None = None
    others_ns: int = 0
    others: int = 0
    last_ns: int | None = None


class Steps:
    """Tells the attempts and steps of one job. ``line`` is the one that problems name.

    ``ended_ns`` is the job's end, None while it runs.
    """

    def __init__(self, peer: str, name: str, first_step_compile: bool) -> None:
        self.line = 0
        self.ended_ns: int | None = None
        self._out = Retelling(peer, name)
        self._compile = first_step_compile
        self._step: _Step | None = None
        self._left: _Left | None = None
        self._lengths = _Lengths()
        self._phases = 0

    @property
    def begun(self) -> bool:
        """Whether there is an attempt."""
        return self._out.attempt > 0

    @property
    def in_loop(self) -> bool:
        """Whether the attempt has begun a step."""
        return self._step is not None or self._lengths.last_ns is not None

    def problem(self, text: str) -> Problem:
        """Return a problem with the line at hand."""
        return Problem(self.line, text)

    def start(self, time_ns: int) -> Iterator[Told]:
        """Begin an attempt; the one before it was cut short."""
        yield from self._finish(time_ns)
        self.ended_ns = None
        yield from self._out.submit(time_ns)
        yield self._out.session(time_ns)

    def step(self, number: int, time_ns: int) -> Iterator[Told]:
        """Begin a step, which ends the one before it."""
        if self._step is not None:
            if time_ns < self._step.begin_ns:
                yield self.problem("a step begins before the one before it; it was left out")
                return
            yield from self._end_step(time_ns, number)
        elif self._left is not None:
            yield from self._settle_left(number)
        # What is still open was no part of this step: it is an outer phase, and the step wins.
        self._phases = 0
        self._step = _Step(self._out.attempt, number, time_ns, time_ns)

    def end(self, time_ns: int) -> Iterator[Told]:
        """End the job, and the step at hand with it."""
        if self._step is not None and time_ns >= self._step.begin_ns:
            yield from self._end_step(time_ns, self._step.number + 1)
            self._step = None
        yield self._out.event(Kind.PROCESS_ENDED, time_ns, {"role": "trainer"}, rank=0)
        self.ended_ns = time_ns

    def close(self) -> Iterator[Told]:
        """Tell the rest: nothing more will come."""
        yield from self._finish(0)
        if self.ended_ns is not None:
            yield self._out.event(Kind.SESSION_ENDED, self.ended_ns, {"outcome": "success"}, rank=0)
            yield from self._out.end(self.ended_ns, JobState.SUCCEEDED.value, None)

    def begin_phase(self, phase: str, time_ns: int, lane: str = MAIN) -> Iterator[Event]:
        """Open a phase. On the main lane it interrupts the step at hand."""
        if lane == MAIN:
            yield from self._pause(time_ns)
            self._phases += 1
        yield self._out.begin_phase(phase, time_ns, lane)

    def end_phase(self, begun: Event, time_ns: int) -> Iterator[Event]:
        """Close the phase that ``begun`` opened; the step at hand goes on."""
        yield self._out.end_phase(begun, time_ns)
        if begun.data["lane"] == MAIN and self._phases:
            self._phases -= 1
            self._resume(time_ns)

    def save(self, begin_ns: int, end_ns: int, number: int, uri: str) -> Iterator[Told]:
        """Tell a save that blocked. It bears the number of the last step in it."""
        yield from self.phase("checkpoint_save", begin_ns, end_ns)
        data = {"checkpoint": uri, "cursor": number + 1, "blocking_ns": end_ns - begin_ns}
        yield self._out.event(Kind.CHECKPOINT_SAVED, end_ns, data, rank=0)

    def phase(self, phase: str, begin_ns: int, end_ns: int) -> Iterator[Told]:
        """Tell a phase that is over."""
        if self._step is not None and begin_ns < self._step.begin_ns:
            yield self.problem(
                f"{phase} began before the step in which it is told: "
                "where they overlap, what began last counts"
            )
        yield from self._pause(begin_ns)
        begun = self._out.begin_phase(phase, begin_ns)
        yield begun
        yield self._out.end_phase(begun, end_ns)
        self._resume(end_ns)

    def _pause(self, time_ns: int) -> Iterator[Event]:
        step = self._step
        if step is None or self._phases or time_ns <= step.from_ns:
            return
        yield self._fragment(step, time_ns)
        step.own_ns += time_ns - step.from_ns
        step.from_ns = time_ns

    def _resume(self, time_ns: int) -> None:
        if self._step is not None and not self._phases:
            self._step.from_ns = max(self._step.from_ns, time_ns)

    def _fragment(self, step: _Step, end_ns: int) -> Event:
        cursors = (step.number, step.number)
        return self._out.interval(step.from_ns, end_ns, cursors, fragment=True)

    def _end_step(self, time_ns: int, following: int) -> Iterator[Told]:
        step = self._step
        assert step is not None
        if following <= step.number:
            yield self.problem("a step number comes again without a job_start_time: one attempt")
        elif following > step.number + 1:
            yield self.problem("steps before this one are missing: their time counts with the last")
        # A phase that is still open keeps what the step has left.
        end = step.from_ns if self._phases else max(step.from_ns, time_ns)
        cursors = (step.number, max(following, step.number + 1))
        own = step.own_ns + end - step.from_ns
        if self._measure(own, cursors):
            self._lengths.rest = (step.from_ns, end, cursors)
        else:
            yield self._out.interval(step.from_ns, end, cursors)

    def _measure(self, own_ns: int, cursors: tuple[int, int]) -> bool:
        """Note the step's length; say whether to keep its interval for later."""
        lengths, steps = self._lengths, cursors[1] - cursors[0]
        first, lengths.last_ns = lengths.last_ns is None, own_ns // steps
        if first:
            lengths.first_ns = own_ns
            return self._compile
        lengths.others_ns += own_ns
        lengths.others += steps
        return False

    def _finish(self, next_ns: int) -> Iterator[Told]:
        """Tell what the attempt at hand leaves behind; a step that has begun is a sign of life."""
        step, lengths = self._step, self._lengths
        if lengths.rest is not None:
            yield from self._tell_first(lengths, *lengths.rest)
        if step is not None:
            yield self._fragment(step, step.from_ns)
            self._left = _Left(step, lengths.last_ns, next_ns)
        self._step, self._lengths, self._phases = None, _Lengths(), 0

    def _tell_first(
        self, lengths: _Lengths, begin_ns: int, end_ns: int, cursors: tuple[int, int]
    ) -> Iterator[Event]:
        """Take off the first step what it took longer than the mean of the others."""
        mean = lengths.others_ns // lengths.others if lengths.others else lengths.first_ns
        over = begin_ns + max(0, min(lengths.first_ns - mean, end_ns - begin_ns))
        if over > begin_ns:
            begun = self._out.begin_phase("compile", begin_ns)
            yield begun
            yield self._out.end_phase(begun, over)
        yield self._out.interval(over, end_ns, cursors)

    def _settle_left(self, following: int) -> Iterator[Told]:
        """Tell the last step of the attempt before, if this one goes on after it.

        That proves that it was done, but not when: it is taken to have lasted as long as the one
        before it, and no longer than until this attempt began.
        """
        assert self._left is not None
        left, self._left = self._left, None
        step = left.step
        if following <= step.number:
            return
        if left.length_ns is None:
            yield self.problem("the step before the restart is done, but how long it took is open")
            return
        yield self.problem(
            "the step before the restart has no end, but this one goes on after it: "
            "it is taken to have lasted as long as the one before it"
        )
        end = max(step.from_ns, min(step.from_ns + left.length_ns - step.own_ns, left.until_ns))
        cursors = (step.number, step.number + 1)
        yield self._out.interval(step.from_ns, end, cursors, attempt=step.attempt)
