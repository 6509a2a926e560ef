"""The metric beside ml-goodput-measurement 0.2.3: a first query, and one after one more event.

Both tell of the same steps. The peer is handed its entries by a list in place of Cloud Logging;
ours folds events that are decoded already: one interval a step, which is more than a Session ever
writes, and beside it the intervals of 10 steps that it does write.
"""

from __future__ import annotations

import gc
import logging
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import islice
from statistics import median
from typing import Any, NamedTuple

from ml_goodput_measurement.src.goodput import GoodputCalculator
from report import Target, publish_table
from story import SECOND, Job, entries, events

from airflow_ett.metric import Fold, JobMetric

COALESCED = 10
CHUNK = 50_000
MORE = 21
ROUNDS = 2


JOBS = {
    "10,000 steps": Job(10_000),
    "100,000 steps": Job(100_000),
    "1,000,000 steps": Job(1_000_000),
    "1,000,000 steps, 99 restarts": Job(1_000_000, restarts=99),
    "10,000 steps, a pause every 10": Job(10_000, pause_every=10),
    "40,000 steps, a pause every 10": Job(40_000, pause_every=10),
    "1,000,000 steps, a pause every 10": Job(1_000_000, pause_every=10),
}
MOST_PAUSES = 4_000
"""The peer looks at every pause for every step, so that more of them would take it hours."""
COLUMNS = (
    "peer: first s",
    "ours: taken in s",
    "first s",
    "times faster",
    "all in all",
    "peer: more ms",
    "ours: more ms",
    "10 s: all s",
    "10 s: more ms",
)


class Source:
    """Stands in for Cloud Logging: hands over what is new."""

    def __init__(self, new: list[dict[str, Any]]) -> None:
        self.new = new

    def read_cloud_logging_entries(self, *_: object, **__: object) -> tuple[list[Any], Any]:
        at = next(value for name, value in self.new[-1].items() if name.endswith("_time"))
        return self.new, (datetime.fromtimestamp(at, UTC), "id")


class Figures(NamedTuple):
    """Seconds of a first query and of one after one more event, and good time in seconds.

    Before that we take the events in, as a poll does with what is new; the peer keeps them as they
    are and pays for them at each query.
    """

    taken_in_s: float
    first_s: float
    more_s: float
    good_s: float

    @property
    def all_s(self) -> float:
        return self.taken_in_s + self.first_s


def ask_peer(job: Job) -> Figures:
    """Ask the peer, then again after one more step."""
    story = entries(job)
    source = Source(list(islice(story, job.entries)))
    with tempfile.TemporaryDirectory() as folder:
        calculator = GoodputCalculator("bench", "log", source, cache_dir=folder)
        first = seconds(calculator.get_job_goodput)
        good = calculator._goodput_cache.get_goodput_info().total_productive_time
        source.new = [next(story)]
        more = seconds(calculator.get_job_goodput)
    return Figures(0.0, first, more, good)


def ask_ours(job: Job, coalesced: int) -> tuple[Figures, JobMetric]:
    """Fold and measure, then again after each of some more events.

    Events are made in chunks between which the clock stands still.
    """
    story = events(job, coalesced)
    taken_in_s = 0.0
    fold = Fold()
    told = islice(story, job.events(coalesced))
    while chunk := list(islice(told, CHUNK)):
        taken_in_s += seconds(lambda chunk=chunk: fold.add(chunk))
    first_s = seconds(fold.measure)
    metric = fold.measure()
    more = []
    for event in islice(story, MORE):
        more.append(seconds(lambda event=event: (fold.add([event]), fold.measure())))
    good_s = metric.effective_ns / SECOND
    return Figures(taken_in_s, first_s, median(more), good_s), metric


def seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def bytes_a_step() -> float:
    """Memory of a fold for each step, one interval a step, of events that nobody else keeps."""
    job = Job(200_000)
    tracemalloc.start()
    fold = Fold()
    fold.add(islice(events(job, 1), job.events(1)))
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / job.steps


def off_by(job: Job, exact: JobMetric, coalesced: JobMetric) -> float:
    """How much effective time the coalesced log books otherwise, in parts of the intervals that
    cross the high-water mark, which are split pro rata: none without a restart.
    """
    assert exact.wall_ns == coalesced.wall_ns, "both logs tell of the same time"
    off = abs(exact.effective_ns - coalesced.effective_ns)
    assert not off or any("was split" in note for note in coalesced.quality_reasons), off
    return off / (job.restarts * COALESCED * SECOND) if job.restarts else float(off)


class Answers(NamedTuple):
    """What the peer (None: not asked) and we say to a job, ours by single steps and by 10 s."""

    peer: Figures | None
    single: Figures
    by_10_s: Figures
    off: float

    def row(self) -> list[float | None]:
        first, more = (self.peer.first_s, self.peer.more_s * 1000) if self.peer else (None, None)
        return [
            first,
            self.single.taken_in_s,
            self.single.first_s,
            first and first / self.single.first_s,
            first and first / self.single.all_s,
            more,
            self.single.more_s * 1000,
            self.by_10_s.all_s,
            self.by_10_s.more_s * 1000,
        ]


def ask(job: Job) -> Answers:
    """Ask both about a job; without a restart they must see the same good time.

    A figure is the least of its rounds, since a shared machine only ever adds time.
    """
    asked = range(ROUNDS) if job.pauses <= MOST_PAUSES else ()
    peer = [ask_peer(job) for _ in asked]
    single = [ask_ours(job, 1) for _ in range(ROUNDS)]
    by_10_s = [ask_ours(job, COALESCED) for _ in range(ROUNDS)]
    off = off_by(job, single[0][1], by_10_s[0][1])
    answers = Answers(
        least(peer) if peer else None,
        least(figures for figures, _ in single),
        least(figures for figures, _ in by_10_s),
        off,
    )
    if answers.peer and not job.restarts:
        assert abs(answers.peer.good_s - answers.single.good_s) < 3, answers
    return answers


def least(rounds: Iterable[Figures]) -> Figures:
    return Figures(*(min(values) for values in zip(*rounds, strict=True)))


def targets(answers: dict[str, Answers]) -> list[Target]:
    """The figures to hold."""
    million, hundred = answers["1,000,000 steps"], answers["100,000 steps"]
    restarted = answers["1,000,000 steps, 99 restarts"]
    assert million.peer
    peer_s = million.peer.first_s
    query, single, by_10_s = (
        peer_s / ours_s
        for ours_s in (million.single.first_s, million.single.all_s, million.by_10_s.all_s)
    )
    growth = million.single.all_s / hundred.single.all_s
    off = max(answer.off for answer in answers.values())
    return [
        Target("first query, 1M steps one by one", query, "times faster", 10, at_least=True),
        Target("the same and taking them in", single, "times faster", 10, at_least=True),
        Target("the same by 10 s", by_10_s, "times faster", 10, at_least=True),
        Target("one more event at 1M steps", million.single.more_s * 1000, "ms", 1),
        Target("the same after 99 restarts", restarted.single.more_s * 1000, "ms", 1),
        Target("time of 1M over 100k steps", growth, "times", 12),
        Target("memory of a step, one by one", bytes_a_step(), "bytes", 120),
        Target("by 10 s: off, of the intervals split pro rata", off, "parts", 1),
    ]


def main() -> None:
    """Ask all in turn, and publish."""
    logging.disable(logging.WARNING)
    answers = {label: ask(job) for label, job in JOBS.items()}
    rows = {label: answer.row() for label, answer in answers.items()}
    publish_table("metric", COLUMNS, rows, targets(answers))
    print(f"The peer's time grows with the square of the pauses: over {MOST_PAUSES:,} not asked.")


if __name__ == "__main__":
    main()
