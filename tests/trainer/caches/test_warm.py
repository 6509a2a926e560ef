"""What is dear to find out is found out once, and nothing about keeping it harms the training."""

from __future__ import annotations

import enum
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.checkpoints import layout
from airflow_ett.events import AttemptId, Kind
from airflow_ett.trainer.caches import warm
from airflow_ett.trainer.caches.store import CacheStore
from airflow_ett.trainer.caches.warm import Warm
from airflow_ett.trainer.levers import Levers
from airflow_ett.trainer.place import Place


class Told:
    """A journal that remembers what the lever told."""

    def __init__(self) -> None:
        self.data: list[dict[str, Any]] = []

    def emit(self, kind: str, data: dict[str, Any]) -> None:
        assert (kind, data["lever"]) == (Kind.LEVER, "warm_recovery")
        self.data.append(data)

    @property
    def outcomes(self) -> list[str]:
        return [data["outcome"] for data in self.data]

    @property
    def reason(self) -> str:
        return str(self.data[-1]["reason"])


Attempt = Callable[..., tuple[Warm, Told]]


@pytest.fixture
def cache(tmp_path: Path) -> str:
    return str(tmp_path / "cache")


@pytest.fixture
def attempt(job: Any, cache: str) -> Attempt:
    """A function that returns what a process of the next attempt keeps values in."""

    def begin(cache: str = cache, rank: int = 0, **environ: str) -> tuple[Warm, Told]:
        told = Told()
        place = Place(replace(job.context, cache=cache), AttemptId(1), rank, rank, 2, 0)
        return Warm(place, Levers(told, environ)), told  # type: ignore[arg-type]

    return begin


def never() -> Any:
    raise AssertionError("this was made before")


VALUE = {"tables": [1, 2.5, None, True], "größe": "\ud800", "empty": {}}


@pytest.mark.parametrize("at", ["folder", "memory"])
def test_the_next_attempt_has_it(attempt: Attempt, cache: str, at: str) -> None:
    place = cache if at == "folder" else "memory://warm/test"
    first, told = attempt(place)
    assert first.get("the plan", lambda: VALUE, "v1") is VALUE
    assert told.outcomes == ["missed", "saved"]
    assert told.data[0]["reason"].startswith("the plan: nothing was saved")
    assert told.data[1]["bytes"] == len(json.dumps(VALUE))

    second, told = attempt(place)
    assert second.get("the plan", never, "v1") == VALUE
    (used,) = told.data
    assert used["outcome"] == "used"
    assert used["reason"] == "the plan: making it took 0.0 s"
    assert used["bytes"] == len(json.dumps(VALUE))
    assert used["duration_ns"] > 0


def test_none_is_a_value(attempt: Attempt) -> None:
    attempt()[0].get("index", lambda: None, None)
    assert attempt()[0].get("index", never, None) is None


def test_another_key_makes_it_anew_and_replaces_it(attempt: Attempt) -> None:
    attempt()[0].get("plan", lambda: "old", {"files": ("a", "b"), "rows": 1})
    changed, told = attempt()
    assert changed.get("plan", lambda: "new", {"files": ("a", "c"), "rows": 1}) == "new"
    assert told.outcomes == ["missed", "saved"]
    assert told.data[0]["reason"] == "plan: what is there was made for another key"
    assert attempt()[0].get("plan", never, {"rows": 1, "files": ("a", "c")}) == "new"


def test_names_share_nothing(attempt: Attempt) -> None:
    names = ["a/b", "a b", "../a", "", "A b", "x" * 300]
    for name in names:
        attempt()[0].put(name, name, None)
    assert [attempt()[0].find(name, None) for name in names] == names


def test_find_and_put_are_its_halves(attempt: Attempt) -> None:
    keeper, told = attempt()
    assert keeper.find("spec", 1) is None
    keeper.put("spec", [3], 1)
    assert told.outcomes == ["missed", "saved"]
    finder, told = attempt()
    assert finder.find("spec", 1) == [3]
    assert (told.outcomes, told.reason) == (["used"], "spec")
    assert finder.get("spec", never, 1) == [3]
    assert finder.find("spec", 2) is None


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    "value",
    [{1, 2}, (1, 2), {1: 2}, [Colour.RED], b"text", object(), [(lambda endless: endless)]],
    ids=lambda value: type(value).__name__,
)
def test_what_json_does_not_give_back_is_made_each_time(attempt: Attempt, value: Any) -> None:
    for _ in range(2):
        keeper, told = attempt()
        assert keeper.get("plan", lambda: value, None) is value
        assert told.outcomes == ["missed", "unable"]
        assert told.reason.startswith("plan is no plain JSON: ")


def test_a_value_within_itself_is_made_each_time(attempt: Attempt) -> None:
    endless: list[Any] = []
    endless.append(endless)
    keeper, told = attempt()
    assert keeper.get("plan", lambda: endless, None) is endless
    assert told.outcomes[-1] == "unable"


def test_a_key_that_is_no_json_is_told(attempt: Attempt, cache: str) -> None:
    keeper, told = attempt()
    assert keeper.get("plan", lambda: 7, {1, 2}) == 7
    assert told.outcomes == ["unable"]
    assert told.reason.startswith("plan: its key is no JSON")
    assert not Path(cache).exists()


def test_corrupt_content_is_made_anew(attempt: Attempt, cache: str) -> None:
    attempt()[0].get("plan", lambda: [1], None)
    (content,) = Path(cache, "warm").glob("*.bin")
    content.write_bytes(b"[2]")
    again, told = attempt()
    assert again.get("plan", lambda: [1], None) == [1]
    assert told.outcomes == ["missed", "saved"]
    assert "corrupt" in told.data[0]["reason"]
    assert attempt()[0].get("plan", never, None) == [1]


def test_what_is_no_json_of_ours_is_made_anew(attempt: Attempt, cache: str) -> None:
    attempt()[0].put("plan", 1, None)
    store = CacheStore(cache, "warm", max_bytes=1000)
    (facts,) = store.listing()
    store.write(facts.name, b"\xff\x80", facts.about)
    again, told = attempt()
    assert again.get("plan", lambda: 2, None) == 2
    assert told.outcomes == ["missed", "saved"]
    store.write(facts.name, b"3", {**facts.about, "took_ns": "?"})
    assert attempt()[0].get("plan", never, None) == 3


def test_a_place_that_others_can_write_is_not_used(attempt: Attempt, cache: str) -> None:
    attempt()[0].put("plan", 1, None)
    Path(cache, "warm").chmod(0o777)
    again, told = attempt()
    assert again.get("plan", lambda: 2, None) == 2
    assert told.outcomes == ["missed", "unable"]
    assert "others can write" in told.reason


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("", "set [ett] cache_root"),
        ("relative/folder", "must be an absolute path"),
        ("nosuchscheme://x", "Protocol not known"),
    ],
)
def test_without_a_place_it_says_so_once(attempt: Attempt, place: str, why: str) -> None:
    keeper, told = attempt(place)
    assert [keeper.get("plan", lambda: 5, None), keeper.find("plan", None)] == [5, None]
    keeper.put("plan", 5, None)
    assert told.outcomes == ["unable"]
    assert why in told.reason


@pytest.mark.parametrize("first", ["read", "write"])
def test_a_place_that_does_not_answer_is_waited_for_once(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """However many values there are: each would hold the training up as long again."""
    answer, asked = threading.Event(), []

    def stall(*_: Any) -> None:
        asked.append(first)
        answer.wait(60)

    monkeypatch.setattr(warm, "_PATIENCE_S", 0.01)
    monkeypatch.setattr(CacheStore, first, stall)
    keeper, told = attempt()
    assert [keeper.get(name, lambda: 5, None) for name in "abc"] == [5, 5, 5]
    keeper.put("d", 5, None)
    assert keeper.find("e", None) is None
    answer.set()
    assert asked == [first]
    assert told.outcomes == ["missed"] * (first == "write") + ["unable"]
    assert told.reason == "a: no answer within 0.01 s; the place is not asked again"


def test_a_file_system_that_cannot_even_be_made_ends_no_training(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some look for their credentials, or connect, as soon as they are made."""

    def unauthorized(_: str) -> Any:
        raise LookupError("no credentials")

    answer = threading.Event()
    monkeypatch.setattr(warm, "_PATIENCE_S", 0.01)
    for make, why in [(unauthorized, "no credentials"), (lambda _: answer.wait(60), "no answer")]:
        monkeypatch.setattr(layout, "folder", make)
        keeper, told = attempt("memory://warm/none")
        assert keeper.get("plan", lambda: 5, None) == 5
        assert told.outcomes == ["unable"]
        assert why in told.reason
    answer.set()


def test_switched_off_it_makes_each_time(attempt: Attempt, cache: str) -> None:
    attempt()[0].put("plan", "kept", None)
    off, told = attempt(ETT_WARM_RECOVERY="0")
    assert off.get("plan", lambda: "made", None) == "made"
    assert off.find("plan", None) is None
    off.put("plan", "made", None)
    assert (told.outcomes, told.reason) == (["off"], "ETT_WARM_RECOVERY=0")
    assert attempt()[0].find("plan", None) == "kept"


def test_outside_a_launched_job_it_makes_each_time() -> None:
    told = Told()
    keeper = Warm(None, Levers(told, {}))  # type: ignore[arg-type]
    assert [keeper.get("plan", lambda: 5, None), keeper.find("plan", None)] == [5, None]
    keeper.put("plan", object(), {1})
    assert told.data == []


def test_only_the_first_rank_keeps(attempt: Attempt) -> None:
    second, told = attempt(rank=1)
    assert second.get("plan", lambda: 1, None) == 1
    assert told.outcomes == ["missed"]
    attempt(rank=0)[0].get("plan", lambda: 2, None)
    assert attempt(rank=1)[0].get("plan", never, None) == 2


def test_an_error_of_making_is_the_users(attempt: Attempt) -> None:
    keeper, told = attempt()
    with pytest.raises(ZeroDivisionError):
        keeper.get("plan", lambda: 1 // 0, None)
    assert told.outcomes == ["missed"]
    assert keeper.get("plan", lambda: 1, None) == 1


def test_the_oldest_go_first(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "_MOST_BYTES", 60)
    keeper, told = attempt()
    for name in "abc":
        keeper.put(name, name * 20, None)
        keeper.find("a", None)
    assert [keeper.find(name, None) is None for name in "abc"] == [False, True, False]
    keeper.put("large", "x" * 100, None)
    assert told.data[-1]["outcome"] == "unable"
    assert "more than the 60" in told.reason


def test_threads_keep_at_once(attempt: Attempt) -> None:
    keeper, told = attempt()
    begin = threading.Barrier(8)

    def run(number: int) -> None:
        begin.wait()
        keeper.get(f"part {number}", lambda: number, None)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told.outcomes) == ["missed"] * 8 + ["saved"] * 8
    again, _ = attempt()
    assert [again.get(f"part {number}", never, None) for number in range(8)] == list(range(8))


def test_a_thread_waits_while_another_opens_the_place(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, opened = threading.Event(), threading.Event()

    def slow(store: CacheStore, *place: Any, **options: Any) -> None:
        opening.set()
        opened.wait(60)
        made(store, *place, **options)

    made = CacheStore.__init__
    monkeypatch.setattr(CacheStore, "__init__", slow)
    keeper, told = attempt()
    threads = [threading.Thread(target=keeper.put, args=(name, name, None)) for name in "ab"]
    threads[0].start()
    assert opening.wait(60)
    threads[1].start()
    threads[1].join(0.05)
    opened.set()
    for thread in threads:
        thread.join()
    assert told.outcomes == ["saved", "saved"]


def test_a_training_keeps_and_the_relaunched_one_uses(job: Any, tmp_path: Path) -> None:
    code = """
        from airflow_ett.trainer import Session
        with Session() as ett:
            print(ett.warm("index", lambda: [1, 2], key="files of May"))
    """
    job.context = replace(job.context, cache=str(tmp_path / "cache"))
    for _ in range(2):
        done = job.run(code)
        assert (done.returncode, done.stdout) == (0, "[1, 2]\n"), done.stderr
        job.next_submission()
    events = [(e.attempt.submission, e.data["outcome"]) for e in job.events(Kind.LEVER)]
    assert sorted(events) == [(1, "missed"), (1, "saved"), (2, "used")]
