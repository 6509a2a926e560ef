"""A store full of trainings, and the Dags they belong to: what the pages' tests and shots show."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from airflow_ett.events import JobKey, RunDir
from airflow_ett.fleet import roll_up
from airflow_ett.store import ingest_root, ingest_run_dir, open_store, upgrade
from tests.ui.gallery import jobs
from tests.ui.gallery.names import (
    DAILY,
    FIRST_RUN,
    FLEET,
    HEBREW,
    HOSTILE_RUNS,
    LIVE_RUN,
    LONG,
    MANY,
    NAMES,
    ONE,
    SEALED,
    SECRET,
    STEADY,
    STEADY_RUN,
    SWEEP,
    SWEEP_RUN,
)
from tests.ui.gallery.story import SECOND, Story

DAY = 86_400 * SECOND


SPECIAL = {"failed": 39, "silent": 44, "cold": 49, "broken": 50, "partial": 55, "good": 58}
"""Some of the sixty daily runs."""
FATES = {SPECIAL["failed"]: "out_of_memory", SPECIAL["broken"]: "application"}
COLD = range(46, 52)


class Gallery:
    """The store of an Airflow in ``home``: its logs and the database at ``url``."""

    def __init__(self, home: Path, *, now_ns: int | None = None, many: int = 500) -> None:
        self.home = home
        self.root = home / "ett" / "runs"
        self.url = f"sqlite:///{home}/ett/ett.db"
        self.now_ns = time.time_ns() if now_ns is None else now_ns
        self._many = many
        self._stories: dict[str, Story] = {}
        self.runs = {
            **HOSTILE_RUNS,
            **{name: scheduled(_day(self.now_ns, number)) for name, number in SPECIAL.items()},
            **{"live": LIVE_RUN, "steady": STEADY_RUN, "sweep": SWEEP_RUN, "first": FIRST_RUN},
            "newest": scheduled(_hour(self.now_ns, many, many - 1)),
        }
        """The ids of the runs that a test may ask for."""

    def fill(self) -> None:
        """Write all logs, ingest them and roll them up."""
        for story in self._all():
            self._stories[story.key.id] = story
            self._alive(story.write(self.root), story)
        upgrade(self.url)
        store = open_store(self.url)
        problems = ingest_root(store, self.root).problems
        assert not problems, problems
        roll_up(store, timezone="UTC")
        store.close()

    def run_ids(self, dag_id: str) -> list[str]:
        """Return the ids of the Dag's runs, oldest first."""
        return [s.key.run_id for s in self._stories.values() if s.key.dag_id == dag_id]

    def go_on(self, run_id: str, seconds: float = 0) -> None:
        """Let a live job train on for so long, or end, and ingest what it tells."""
        (story,) = (s for s in self._stories.values() if s.key.run_id == run_id)
        if seconds:
            story.train(seconds, every=10)
        else:
            story.finish()
        run = story.write(self.root)
        self._alive(run, story)
        store = open_store(self.url)
        ingest_run_dir(store, run.path)
        store.close()

    def _alive(self, run: RunDir, story: Story) -> None:
        if story.key.run_id in (LIVE_RUN, STEADY_RUN):
            run.heartbeat(story.attempt, 0).touch()

    def _all(self) -> Iterator[Story]:
        yield from _daily(self.now_ns)
        yield from _many(self.now_ns, self._many)
        yield from _hostile(self.now_ns)
        yield from _sweep(self.now_ns)
        yield from _fleet(self.now_ns)
        for dag_id in (ONE, SECRET, SEALED, HEBREW, LONG):
            key = JobKey("default", dag_id, FIRST_RUN, "train")
            yield jobs.ending(jobs.wide, key, self.now_ns - DAY // 2)
        key = JobKey("default", STEADY, STEADY_RUN, "train")
        yield jobs.ending(jobs.steady, key, self.now_ns - 900 * SECOND)


def scheduled(when: datetime) -> str:
    """Return the id that Airflow gives the scheduled run of a time."""
    return f"scheduled__{when.isoformat()}"


def _day(now_ns: int, number: int) -> datetime:
    """Return two o'clock of the day with this number; today has number 60."""
    today = datetime.fromtimestamp(now_ns // SECOND, UTC)
    return today.replace(hour=2, minute=0, second=0, microsecond=0) - timedelta(days=60 - number)


def _hour(now_ns: int, count: int, number: int) -> datetime:
    """Return the full hour of the run with this number, of so many, every second hour."""
    now = datetime.fromtimestamp(now_ns // SECOND, UTC).replace(minute=0, second=0, microsecond=0)
    return now - timedelta(hours=2 * (count - number))


def _daily(now_ns: int) -> Iterator[Story]:
    """Sixty days, the last of them live: cold compiles, two failed, one silent, one partial."""
    random = Random(11)
    for number in range(59):
        when = _day(now_ns, number)
        key = JobKey("default", DAILY, scheduled(when), "train")
        begin = int(when.timestamp()) * SECOND
        cold = number in COLD
        late = number >= 30
        odds = [48, 32, 14, 6] if late else [36, 34, 20, 10]
        daily = jobs.Daily(key, begin, random)
        if number == SPECIAL["silent"]:
            yield jobs.silent(key, begin)
            continue
        fate = {SPECIAL["failed"]: "out_of_memory", SPECIAL["broken"]: "application"}.get(
            number, ""
        )
        story = daily.run(
            failures=random.choices([0, 1, 2, 3], odds)[0],
            compile_s=1980 if cold else 262 if late else 1090,
            again_s=1980 if cold else 61 if late else 760,
            hours=random.gauss(9.1, 0.4) * (0.4 if fate else 1),
            fate=fate,
            hole=number == SPECIAL["partial"],
        )
        yield story
    yield jobs.ending(jobs.live, JobKey("default", DAILY, LIVE_RUN, "train"), now_ns)


def _many(now_ns: int, count: int) -> Iterator[Story]:
    random = Random(7)
    for number in range(count):
        when = _hour(now_ns, count, number)
        begin = int(when.timestamp()) * SECOND
        yield jobs.short(JobKey("default", MANY, scheduled(when), "train"), begin, random)


def _hostile(now_ns: int) -> Iterator[Story]:
    for number, run_id in enumerate(HOSTILE_RUNS.values()):
        key = JobKey("default", NAMES, run_id, "train")
        yield jobs.hostile(key, now_ns - DAY - number * 3600 * SECOND)


def _sweep(now_ns: int) -> Iterator[Story]:
    """Three mapped tasks beside another one, of which one was trained again."""
    begin = now_ns - DAY
    for index in range(3):
        key = JobKey("default", SWEEP, SWEEP_RUN, "tune", index)
        yield jobs.short(key, begin, Random(index))
    for generation in (1, 2):
        key = JobKey("default", SWEEP, SWEEP_RUN, "train", -1, generation)
        yield jobs.short(key, begin + generation * 3 * 3600 * SECOND, Random(generation))


def _fleet(now_ns: int) -> Iterator[Story]:
    """Two months of some twenty Dags; two of them are new."""
    random = Random(4)
    for place, dag_id in enumerate(FLEET):
        accelerators = {"llm_sft_70b": 256, "video_recs_large": 128}.get(dag_id)
        accelerators = accelerators or random.choice([8, 8, 16, 32, 64])
        half_s = random.uniform(800, 4000)
        since = 20 if dag_id in ("llm_dpo_7b", "vision_quality") else 58
        for day in range(since, 0, -6 if place % 3 else -3):
            begin = now_ns - day * DAY + place * 600 * SECOND
            when = datetime.fromtimestamp(begin // SECOND, UTC)
            key = JobKey("default", dag_id, scheduled(when), "train")
            yield jobs.short(key, begin, random, accelerators=accelerators, half_s=half_s)
