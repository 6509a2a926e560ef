"""Results as the metric makes them of whole stories, and the tab's page in words."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from airflow_ett.events import JobKey
from airflow_ett.store import ingest_run_dir, open_store, queries, upgrade
from tests.ui.gallery import jobs
from tests.ui.gallery.story import Story

NOW = 1_796_000_000 * 10**9

Result = dict[str, Any]


class Told(NamedTuple):
    """A job as the store holds it."""

    result: Result
    phases: Sequence[queries.PhaseRow]


def tell(folder: Path, story: Story) -> Told:
    """Write a story's log, ingest it and read the job back."""
    url = f"sqlite:///{folder}/ett.db"
    upgrade(url)
    store = open_store(url)
    run = story.write(folder / "runs")
    beat = run.heartbeat(story.attempt, 0)
    beat.parent.mkdir(parents=True, exist_ok=True)
    beat.touch()
    os.utime(beat, ns=(story.now_ns, story.now_ns))
    ingest_run_dir(store, run.path)
    (job,) = queries.jobs(store)
    found = Told(job.result, queries.phases(store, job.job))
    store.close()
    return found


@pytest.fixture
def told(tmp_path: Path) -> Callable[[Story], Told]:
    """Have a story measured: ``told(story)``."""
    return lambda story: tell(tmp_path, story)


@pytest.fixture(scope="session")
def lively(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """A live job: four attempts by every layer, and six minutes without progress."""
    story = jobs.ending(jobs.live, JobKey("default", "ranker", "live", "train"), NOW)
    return tell(tmp_path_factory.mktemp("lively"), story)


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """A job in which all that a user names is markup."""
    story = jobs.hostile(JobKey("default", "ranker", "hostile", "train"), NOW)
    return tell(tmp_path_factory.mktemp("hostile"), story)


@pytest.fixture(scope="session")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """A job of eight ranks that ended well."""
    story = jobs.wide(JobKey("default", "ranker", "wide", "train"), NOW)
    return tell(tmp_path_factory.mktemp("wide"), story)


@pytest.fixture(scope="session")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """A job that failed for good: rank 3 raised at its second attempt."""
    story = Story(JobKey("default", "ranker", "broken", "train"), NOW, accelerators=8)
    for layer in ("first", "airflow"):
        story.submit(layer)
        story.allocate(20, 10)
        story.boot("node-3", 5)
        if layer == "airflow":
            story.resume(4)
        story.train(300, every=60)
        story.save(4, 20)
        story.train(120, every=60)
        lines = ["step 7", "ValueError: <b>too many</b>"]
        story.fail("application", 10, "rank 3 raised ValueError", replica=3, lines=lines)
    story.end("failed", "application")
    return tell(tmp_path_factory.mktemp("broken"), story)


@pytest.fixture(scope="session")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """A job whose trainer sent no events."""
    story = jobs.silent(JobKey("default", "ranker", "silent", "train"), NOW)
    return tell(tmp_path_factory.mktemp("quiet"), story)
