"""A store goes on with a job's fold only where that gives what all stored events give."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from airflow_ett.errors import EventLogError, StoreError
from airflow_ett.events import AttemptId, CursorFile, LogWriter, RunDir, trainer_writer
from airflow_ett.store import Store, ingest_run_dir, open_store, queries, tables, upgrade
from airflow_ett.store.project import load_events

WriteJob = Callable[..., RunDir]
S = 1_000_000_000
BEGIN = 1_790_000_000 * S
MOVES = ("first", "second", "first", "second", "both", "trainer", "launcher", "open", "copy")
WRITER = trainer_writer(AttemptId(2), 0, 7)
PROJECTED = (tables.job, *tables.PROJECTED)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The ingest's present; ``now_ns`` can be set."""
    clock = SimpleNamespace(now_ns=BEGIN + 100 * S)
    clock.time_ns = lambda: clock.now_ns
    monkeypatch.setattr("airflow_ett.store.batch.time", clock)
    return clock


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs whose events were all read from the database."""
    jobs: list[str] = []
    load = load_events

    def counted(connection: Any, job: str) -> Any:
        jobs.append(job)
        return load(connection, job)

    monkeypatch.setattr("airflow_ett.store.batch.load_events", counted)
    return jobs


class Training:
    """A live job whose logs grow by one event at a time; its cursor runs ahead of them."""

    def __init__(self, run: RunDir, job: str) -> None:
        self.run, self.job = run, job
        self.second = 100
        place: dict[str, Any] = {"job": job, "attempt": AttemptId(2), "rank": 0}
        self.trainer = LogWriter(run.nodes / "more.jsonl", writer=WRITER, **place)
        self.launcher = LogWriter(run.launcher / "claim-2.jsonl", job=job, writer="launcher-2")
        self.cursor = CursorFile(run.cursor)

    def close(self) -> None:
        for file in (self.trainer, self.launcher, self.cursor):
            file.close()

    def interval(self, seconds: int) -> dict[str, int]:
        begin, cursor = self.second * S, 2000 + 10 * self.second
        end = begin + seconds * S
        return {"from": BEGIN + begin, "to": BEGIN + end, "cursor_from": cursor} | {
            "cursor_to": cursor + 10 * seconds, "steps": seconds, "step_ns": end - begin,
            "wait_ns": 0, "other_ns": 0,
        }  # fmt: skip

    def open(self, seconds: int) -> None:
        """Let the cursor tell of an interval that the trainer has not written yet."""
        data = self.interval(seconds)
        numbers = (2, 0, 0, 0, 7, self.trainer.next_seq, data["cursor_to"], data["cursor_to"])
        times = (data["from"], data["to"], data["cursor_from"], seconds, data["step_ns"], 0, 0, 0)
        self.cursor.write(*numbers, *times)

    def train(self, seconds: int) -> None:
        """Write the interval."""
        data = self.interval(seconds)
        self.trainer.append("interval", data, time_ns=data["to"])
        self.second += seconds

    def tell(self) -> None:
        """Let the launcher say something."""
        state = {"submission": 2, "state": "RUNNING", "started_ns": BEGIN + self.second * S}
        self.launcher.append("scheduler_state", state, time_ns=BEGIN + self.second * S)

    def copy(self) -> None:
        """Write the trainer's log a second time, to another file."""
        (self.run.nodes / "copy.jsonl").write_bytes(self.trainer.path.read_bytes())


@pytest.fixture
def training(tmp_path: Path, write_job: WriteJob) -> Iterator[Training]:
    training = start(tmp_path, write_job)
    yield training
    training.close()


def start(root: Path, write_job: WriteJob) -> Training:
    run = write_job(root, ended=False, run_id=str(root))
    first = next(iter(run.logs())).read_text()
    return Training(run, first.split('"job":"')[1][:20])


def rows(store: Store) -> list[Any]:
    with store.read() as connection:
        return [
            [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key))]
            for table in PROJECTED
        ]


def check(store: Store, url: str, training: Training) -> None:
    """A store that knows nothing finds that nothing has to change."""
    before = rows(store)
    fresh = open_store(url)
    ingest_run_dir(fresh, training.run.path)
    fresh.close()
    assert rows(store) == before


def play(url: str, training: Training, clock: SimpleNamespace, moves: list[str], r: Random) -> None:
    """Let the job go on and two stores ingest it, as the moves say."""
    stores = {"first": open_store(url), "second": open_store(url)}
    for move in moves:
        if move == "trainer":
            training.train(r.randint(1, 3))
        elif move == "launcher":
            training.tell()
        elif move == "open":
            training.open(r.randint(1, 3))
        elif move == "copy":
            training.copy()
        else:
            clock.now_ns = BEGIN + (training.second + 10) * S
            for name in stores if move == "both" else [move]:
                ingest_run_dir(stores[name], training.run.path)
                check(stores[name], url, training)
    for store in stores.values():
        store.close()


@pytest.fixture(scope="module")
def shared_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An SQLite database that all examples use."""
    url = f"sqlite:///{tmp_path_factory.mktemp('folds')}/ett.db"
    upgrade(url)
    return url


@settings(max_examples=60, deadline=None)
@given(moves=st.lists(st.sampled_from(MOVES), max_size=12), seed=st.integers(0, 99))
def test_two_stores_give_what_a_fresh_one_gives(
    shared_url: str, write_job: WriteJob, moves: list[str], seed: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        clock = SimpleNamespace(now_ns=0)
        clock.time_ns = lambda: clock.now_ns
        patch.setattr("airflow_ett.store.batch.time", clock)
        training = start(Path(folder), write_job)
        play(shared_url, training, clock, moves, Random(seed))
        training.close()


@pytest.mark.parametrize("seed", range(4))
def test_so_do_they_on_every_database(
    url: str, training: Training, clock: SimpleNamespace, seed: int
) -> None:
    random = Random(seed)
    play(url, training, clock, random.choices(MOVES, k=20), random)


def test_a_poll_reads_only_what_is_new(
    store: Store, training: Training, loads: list[str], clock: SimpleNamespace
) -> None:
    for _ in range(5):
        training.open(1)
        ingest_run_dir(store, training.run.path)
        training.open(2)
        ingest_run_dir(store, training.run.path)
        training.train(3)
        training.tell()
        clock.now_ns += 3 * S
        ingest_run_dir(store, training.run.path)
    # Not even the first: what was read from the logs is all that there is.
    assert loads == []


def test_what_another_store_ingested_is_noticed(
    store: Store, url: str, training: Training, loads: list[str]
) -> None:
    ingest_run_dir(store, training.run.path)
    training.train(3)
    other = open_store(url)
    ingest_run_dir(other, training.run.path)
    ingest_run_dir(store, training.run.path)
    assert len(loads) == 2
    check(store, url, training)
    other.close()


def test_an_ingest_that_was_overtaken_moves_no_log_back(
    store: Store,
    url: str,
    training: Training,
    loads: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = open_store(url)
    ingest_run_dir(other, training.run.path)
    training.train(3)
    write = store.write

    def overtaken(work: Any) -> Any:
        training.train(3)
        ingest_run_dir(other, training.run.path)
        return write(work)

    monkeypatch.setattr(store, "write", overtaken)
    assert ingest_run_dir(store, training.run.path).new_events == 0
    assert len(loads) == 1
    assert ingest_run_dir(other, training.run.path).new_events == 0
    assert len(loads) == 1
    check(store, url, training)
    other.close()


def test_of_two_events_under_one_number_the_stored_one_counts(
    store: Store, url: str, training: Training
) -> None:
    training.train(1)
    ingest_run_dir(store, training.run.path)
    data = training.interval(5)
    longer = LogWriter(training.run.nodes / "z.jsonl", job=training.job, writer=WRITER)
    longer.append("interval", data, time_ns=data["to"], attempt=AttemptId(2), rank=0)
    longer.close()
    ingest_run_dir(store, training.run.path)
    check(store, url, training)


def test_an_open_interval_that_nobody_wrote_is_forgotten(
    store: Store, url: str, training: Training
) -> None:
    ingest_run_dir(store, training.run.path)
    without = queries.jobs(store)[0].effective_ns
    training.open(3)
    ingest_run_dir(store, training.run.path)
    assert queries.jobs(store)[0].effective_ns == without + 3 * S
    training.run.cursor.unlink()
    ingest_run_dir(store, training.run.path)
    assert queries.jobs(store)[0].effective_ns == without


def test_an_interval_stored_shorter_than_it_was_open_counts_as_stored(
    store: Store, url: str, training: Training
) -> None:
    training.open(3)
    ingest_run_dir(store, training.run.path)
    training.train(1)
    ingest_run_dir(store, training.run.path)
    check(store, url, training)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (OperationalError("COMMIT", {}, Exception("gone")), StoreError),
        (KeyError("x"), EventLogError),
    ],
)
def test_what_was_rolled_back_is_in_no_fold(
    store: Store,
    url: str,
    training: Training,
    monkeypatch: pytest.MonkeyPatch,
    fault: Exception,
    told: type[Exception],
) -> None:
    ingest_run_dir(store, training.run.path)
    log = training.trainer.path.read_bytes()
    training.train(3)

    def fail(*_: Any, **__: Any) -> None:
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr("airflow_ett.store.batch.project", fail)
        with pytest.raises(told):
            ingest_run_dir(store, training.run.path)
    training.trainer.path.write_bytes(log)
    training.train(3)
    ingest_run_dir(store, training.run.path)
    check(store, url, training)


def test_few_folds_are_kept(
    store: Store, tmp_path: Path, write_job: WriteJob, loads: list[str]
) -> None:
    live = [write_job(tmp_path, run_id=str(n), ended=False) for n in range(6)]
    for run in live:
        ingest_run_dir(store, run.path)
    loads.clear()
    for run in reversed(live):
        ingest_run_dir(store, run.path)
    assert len(loads) == 2
