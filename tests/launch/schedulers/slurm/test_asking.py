"""One question for all watched jobs: how often a cluster is asked, and what of."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from airflow_ett.errors import LaunchError
from airflow_ett.launch.schedulers.slurm.asking import FRESH_S, WATCHED_S, Asking
from airflow_ett.launch.schedulers.slurm.transport import Result

NO_ACCOUNTS = Result(1, "", "Slurm accounting storage is disabled\n")


def queued(*jobs: tuple[int, str]) -> Result:
    """Return what squeue says of jobs, each with its state."""
    return Result(0, "".join(f"{n}|app{n}|{s}|None|n1|0|1|2|0|1|\n" for n, s in jobs), "")


def kept(*jobs: tuple[int, str]) -> Result:
    """Return what sacct says of jobs."""
    return Result(0, "".join(f"{n}|app{n}|{s}|None|n1|1|2|0:0\n" for n, s in jobs), "")


@dataclass
class Fake:
    """A cluster that says what a test wants, and counts."""

    squeue: Result = field(default_factory=queued)
    sacct: Result = field(default_factory=kept)
    asked: list[tuple[str, ...]] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None

    def run(self, argv: Sequence[str], input: str | None = None) -> Result:
        self.asked.append(tuple(argv))
        self.meanwhile()
        return self.squeue if argv[0] == "squeue" else self.sacct

    def count(self, command: str) -> int:
        return sum(argv[0] == command for argv in self.asked)


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def asking(fake: Fake, clock: Clock) -> Asking:
    return Asking(fake, clock)


def state(asking: Asking, number: int) -> str | None:
    job = asking.job(number)
    return job.state if job else None


def test_two_hundred_jobs_are_one_question_a_second(
    asking: Asking, fake: Fake, clock: Clock
) -> None:
    fake.squeue = queued(*[(number, "RUNNING") for number in range(200)])
    for second in range(3):
        clock.now_s = 1000 + second * FRESH_S
        assert {state(asking, number) for number in range(200)} == {"RUNNING"}
    assert len(fake.asked) == fake.count("squeue") == 3


def test_only_what_the_queue_has_forgotten_is_asked_of_the_accounts_and_once(
    asking: Asking, fake: Fake, clock: Clock
) -> None:
    fake.squeue = queued((1, "RUNNING"), (2, "RUNNING"), (3, "RUNNING"))
    assert [state(asking, number) for number in (1, 2, 3)] == ["RUNNING"] * 3
    fake.squeue, fake.sacct = queued((2, "RUNNING")), kept((1, "COMPLETED"), (3, "FAILED"))
    for _ in range(3):
        clock.now_s += FRESH_S
        assert [state(asking, n) for n in (1, 2, 3)] == ["COMPLETED", "RUNNING", "FAILED"]
    assert fake.count("sacct") == 1
    assert "--jobs=1,3" in fake.asked[2]


def test_what_the_accounts_call_running_is_asked_for_again(
    asking: Asking, fake: Fake, clock: Clock
) -> None:
    fake.sacct = kept((1, "RUNNING"))
    assert state(asking, 1) == "RUNNING"
    clock.now_s += FRESH_S
    fake.sacct = kept((1, "COMPLETED"))
    assert state(asking, 1) == "COMPLETED"


def test_a_job_that_nobody_asks_for_any_more_is_dropped(
    asking: Asking, fake: Fake, clock: Clock
) -> None:
    fake.sacct = kept((1, "RUNNING"))
    state(asking, 1)
    clock.now_s += WATCHED_S
    state(asking, 2)
    assert "--jobs=2" in fake.asked[-1]


def test_without_accounts_a_forgotten_job_is_unknown(asking: Asking, fake: Fake) -> None:
    fake.sacct = NO_ACCOUNTS
    assert state(asking, 1) is None
    assert asking.accounted("--name=x") == []


REFUSED = Result(1, "", "Connection refused\n")


def test_a_controller_that_is_away_is_an_error_for_all_and_is_not_asked_by_each(
    asking: Asking, fake: Fake, clock: Clock
) -> None:
    fake.squeue = REFUSED
    for number in (1, 1, 1):
        with pytest.raises(LaunchError, match="squeue failed: Connection refused"):
            state(asking, number)
    assert fake.count("squeue") == 1
    fake.squeue = queued((1, "RUNNING"))
    clock.now_s += FRESH_S
    assert state(asking, 1) == "RUNNING"


def test_accounts_that_are_away_are_an_error_for_those_alone_that_need_them(
    asking: Asking, fake: Fake, clock: Clock
) -> None:
    fake.squeue, fake.sacct = queued((1, "RUNNING")), REFUSED
    with pytest.raises(LaunchError, match="sacct failed: Connection refused"):
        state(asking, 2)
    assert state(asking, 1) == "RUNNING"
    assert asking.named("app2") is None
    fake.sacct = kept((2, "COMPLETED"))
    clock.now_s += FRESH_S
    assert state(asking, 2) == "COMPLETED"


def again(state: str) -> Result:
    """Return what squeue says of job 1, which Slurm has started again."""
    return Result(0, f"1|app1|{state}|BeginTime||1|N/A|N/A|0|1|\n", "")


def former(asking: Asking) -> str:
    job = asking.job(1)
    assert job is not None
    return job.former


def test_how_the_run_before_ended_is_asked_until_it_is_known(
    asking: Asking, fake: Fake, clock: Clock
) -> None:
    fake.squeue = again("PENDING")
    fake.sacct = Result(0, "1|app1|RUNNING|None|n1|1|Unknown|0:0\n", "")
    assert former(asking) == ""
    clock.now_s += FRESH_S
    fake.sacct = kept((1, "PREEMPTED"))
    assert former(asking) == "PREEMPTED"
    for _ in range(3):
        clock.now_s += FRESH_S
        assert former(asking) == "PREEMPTED"
    assert fake.count("sacct") == 2


def test_the_accounts_of_a_second_run_tell_of_the_first(asking: Asking, fake: Fake) -> None:
    fake.squeue, fake.sacct = again("PENDING"), kept((1, "NODE_FAIL"), (1, "PENDING"))
    assert former(asking) == "NODE_FAIL"


def test_a_number_that_came_again_owes_nothing_to_the_job_before(
    asking: Asking, fake: Fake, clock: Clock
) -> None:
    fake.squeue, fake.sacct = again("PENDING"), Result(0, "1|gone|NODE_FAIL|None|n1|1|2|0:0\n", "")
    assert former(asking) == ""
    fake.squeue, fake.sacct = Result(0, "", ""), kept((1, "FAILED"))
    clock.now_s += FRESH_S
    assert state(asking, 1) == "FAILED"
    fake.squeue = Result(0, "1|other|RUNNING|None|n1|0|1|2|0|1|\n", "")
    clock.now_s += FRESH_S
    assert state(asking, 1) == "RUNNING"
    fake.squeue, fake.sacct = (
        Result(0, "", ""),
        Result(0, "1|other|COMPLETED|None|n1|1|2|0:0\n", ""),
    )
    clock.now_s += FRESH_S
    assert state(asking, 1) == "COMPLETED"


def test_once_the_next_run_has_begun_it_is_not_asked_any_more(
    asking: Asking, fake: Fake, clock: Clock
) -> None:
    fake.squeue, fake.sacct = again("RUNNING"), NO_ACCOUNTS
    for _ in range(3):
        assert former(asking) == ""
        clock.now_s += FRESH_S
    assert fake.count("sacct") == 1


def test_after_a_change_the_cluster_is_asked_anew(asking: Asking, fake: Fake) -> None:
    fake.squeue = queued((1, "RUNNING"))
    state(asking, 1)
    fake.squeue = queued((1, "CANCELLED"))
    asking.forget()
    assert state(asking, 1) == "CANCELLED"


def test_an_answer_from_before_a_change_is_used_once_only(asking: Asking, fake: Fake) -> None:
    fake.squeue = queued((1, "PENDING"))
    fake.meanwhile = asking.forget
    state(asking, 1)
    fake.meanwhile = lambda: None
    fake.squeue = queued((1, "RUNNING"))
    assert state(asking, 1) == "RUNNING"


def test_a_name_is_looked_up_in_the_queue_and_the_newest_job_of_it_counts(
    asking: Asking, fake: Fake
) -> None:
    fake.squeue = Result(0, "7|a|FAILED|None|n1|0|1|2|0|1|\n9|a|PENDING|None||0|1|2|0|1|\n", "")
    found = asking.named("a")
    assert found is not None
    assert found.id == 9
    assert asking.named("b") is None


def test_threads_that_wait_for_an_answer_are_served_by_it_however_long_it_takes(
    fake: Fake,
) -> None:
    fake.squeue = queued(*[(number, "RUNNING") for number in range(16)])
    begun = threading.Semaphore(0)

    class Counted(Clock):
        def __call__(self) -> float:
            begun.release()
            return super().__call__()

    counted = Counted()
    asking = Asking(fake, counted)

    def slowly() -> None:
        fake.meanwhile = lambda: None
        for _ in range(16 + 2):  # all have asked, and the first has read its clock twice more
            assert begun.acquire(timeout=10)
        counted.now_s += 10 * FRESH_S

    fake.meanwhile = slowly
    with ThreadPoolExecutor(16) as threads:
        assert set(threads.map(lambda number: state(asking, number), range(16))) == {"RUNNING"}
    assert len(fake.asked) == 1


def test_threads_that_ask_at_once_share_one_question(fake: Fake) -> None:
    fake.squeue = queued(*[(number, "RUNNING") for number in range(16)])
    fake.meanwhile = lambda: time.sleep(0.2)
    asking, begin = Asking(fake), threading.Barrier(16)

    def ask(number: int) -> str | None:
        begin.wait(10)
        return state(asking, number)

    with ThreadPoolExecutor(16) as threads:
        assert set(threads.map(ask, range(16))) == {"RUNNING"}
    assert len(fake.asked) == 1
