"""What must hold for any log that a bad day can produce."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_ett.events import Event, decode, encode, read_log
from airflow_ett.metric import COMPONENTS, Fold, JobMetric, measure
from airflow_ett.metric.account import windows as sliding

SEEDS = st.integers(0, 10**9)
MOMENTS = st.one_of(st.none(), st.integers(0, 500))
STRETCHES = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), max_size=4)
Stretch = tuple[int, int]


@pytest.fixture(scope="module", autouse=True)
def short_windows() -> Iterator[None]:
    """Windows as short as the lives."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sliding, "LENGTHS_NS", {"1h": 40, "24h": 150})
        yield


def check_sums(metric: JobMetric) -> None:
    """Everything is summed exactly, whatever is excluded."""
    wall = metric.wall_ns
    assert wall == metric.end_ns - metric.begin_ns - metric.excluded_ns
    whole = (metric.phases_ns, metric.components_ns, metric.levels_ns)
    assert [sum(parts.values()) for parts in whole] == [wall] * 3
    positions = metric.positions_ns
    assert {bucket: sum(parts.values()) for bucket, parts in positions.items()} == metric.levels_ns
    by_phase = sum((Counter(parts) for parts in positions.values()), Counter())
    assert by_phase == Counter(metric.phases_ns)
    of_attempts = sum((Counter(one.phases_ns) for one in metric.attempts), Counter())
    assert of_attempts == Counter(metric.phases_ns)
    assert sum(metric.held_components_ns.values()) == metric.held_ns <= wall
    assert metric.effective_ns == metric.levels_ns["effective"] == metric.phases_ns.get("train", 0)
    assert set(positions["effective"]) <= {"train"}
    assert metric.levels_ns["recovery"] == sum(recovery.ns for recovery in metric.ttr)
    assert metric.levels_ns["start"] == metric.tts_ns
    assert metric.utt_ns >= sum(recovery.utt_ns for recovery in metric.ttr)
    signed = [*whole, *positions.values(), metric.held_components_ns]
    assert min(ns for parts in signed for ns in [0, *parts.values()]) == 0
    assert min([metric.excluded_ns, metric.at_risk_ns, *(one.ns for one in metric.ttr)]) >= 0
    percents = [metric.ett_pct, metric.ett_pct_held, metric.ett_pct_paper]
    for window in metric.windows.values():
        assert sum(window.components_ns.values()) == window.wall_ns <= wall
        assert 0 <= window.components_ns["effective"] == window.effective_ns <= metric.effective_ns
        assert min(window.components_ns.values()) >= 0
        assert metric.begin_ns <= window.begin_ns <= window.end_ns == metric.end_ns
        percents.append(window.ett_pct)
    assert all(percent is None or 0 <= percent <= 100 for percent in percents)


def spent(metric: JobMetric, stretch: Stretch, excluded: Iterable[Stretch] = ()) -> Counter[str]:
    """Phase -> ns in a stretch, read from the spans piece by piece."""
    lost = [*excluded]
    total: Counter[str] = Counter()
    for span in metric.spans:
        if span.lane == "main":
            begin, end = max(span.begin_ns, stretch[0]), min(span.end_ns, stretch[1])
            edges = sorted({begin, end, *(e for one in lost for e in one if begin < e < end)})
            for one, two in pairwise(edges) if begin < end else ():
                if not any(low <= one and two <= high for low, high in lost):
                    total[span.phase] += two - one
    return total


@settings(max_examples=1500, deadline=None)
@given(SEEDS, MOMENTS, MOMENTS)
@example(3410950, None, None)  # a phase that another component has in the midst of it
def test_every_sum_is_the_wall_clock(lives, invariants, seed, now, sign) -> None:
    metric = measure(lives.any_life(seed), now_ns=now, last_sign_ns=sign)
    invariants(metric)
    check_sums(metric)


@settings(max_examples=800, deadline=None)
@given(SEEDS, STRETCHES)
def test_what_is_excluded_leaves_every_sum(lives, seed, stretches) -> None:
    events = lives.any_life(seed)
    whole, metric = measure(events), measure(events, exclude=stretches)
    check_sums(metric)
    stretch = whole.begin_ns, whole.end_ns
    assert metric.spans == whole.spans
    assert sum(metric.phases_ns.values()) == spent(whole, stretch, stretches).total()
    cut = any("maintenance cuts" in reason for reason in metric.quality_reasons)
    for attempt in () if cut else metric.attempts:
        own = spent(whole, (attempt.begin_ns, attempt.end_ns), stretches)
        assert Counter(attempt.phases_ns) == own
    assert measure(events, exclude=[(0, 2**63 - 1)]).wall_ns == 0


@settings(max_examples=800, deadline=None)
@given(SEEDS, STRETCHES)
def test_a_window_holds_what_the_spans_hold_there(lives, seed, stretches) -> None:
    metric = measure(lives.any_life(seed), exclude=stretches)
    for window in metric.windows.values():
        there = spent(metric, (window.begin_ns, window.end_ns), stretches)
        assert window.wall_ns == there.total()
        cut = any("maintenance cuts" in reason for reason in metric.quality_reasons)
        if not window.split and not cut:
            assert window.effective_ns == there["train"]
            known = Counter[str]()
            for phase, ns in there.items():
                if COMPONENTS.knows(phase):
                    known[COMPONENTS.of(phase)] += ns
            assert known <= Counter(window.components_ns)


@settings(max_examples=600, deadline=None)
@given(SEEDS, st.integers(0, 10**6), st.integers(0, 10**6), STRETCHES)
def test_a_frozen_result_never_depends_on_the_present(lives, seed, now, sign, stretches) -> None:
    fold = Fold()
    fold.add(lives.any_life(seed))
    frozen = fold.measure(exclude=stretches)
    if frozen.frozen:
        again = fold.measure(now_ns=now, last_sign_ns=sign, exclude=stretches)
        assert again == frozen
        assert again.as_dict() == frozen.as_dict()
        assert frozen.current_phase is None


@settings(max_examples=400, deadline=None)
@given(SEEDS)
def test_an_honest_log_is_measured_exactly(lives, seed) -> None:
    """Without loss and skew, train and replay are what the story told, however it went."""
    events = lives.Life(seed, plain=True).tell()
    metric = measure([decode(encode(event)) for event in events])
    told = [event.data for event in events if event.kind == "interval"]
    stepped = metric.phases_ns.get("train", 0) + metric.phases_ns.get("replay", 0)
    assert stepped == sum(data["step_ns"] for data in told)
    assert metric.phases_ns.get("data_wait", 0) == sum(data["wait_ns"] for data in told)
    ended = [event for event in events if event.kind == "attempt_ended"]
    assert metric.nof == sum(event.data["cause"] == "preempted" for event in ended)
    assert not [reason for reason in metric.quality_reasons if "missing" in reason]
    assert metric.utt_ns + metric.at_risk_ns <= metric.effective_ns


@settings(max_examples=150, deadline=None)
@given(SEEDS, st.randoms(use_true_random=False))
def test_a_log_followed_line_by_torn_line_is_the_log(lives, tmp_path_factory, seed, rng) -> None:
    """Whatever has reached the disk by each look, the lines come together again."""
    path: Path = tmp_path_factory.mktemp("log") / "t.jsonl"
    content = b"".join(map(encode, lives.any_life(seed)))
    cuts = sorted(rng.randint(0, len(content)) for _ in range(5))
    fold, offset, events = Fold(), 0, list[Event]()
    for cut in [*cuts, len(content)]:
        path.write_bytes(content[:cut])
        chunk = read_log(path, offset)
        offset = chunk.offset
        events += chunk.events
        fold.add(chunk.events)
        fold.measure()
    assert tuple(events) == read_log(path).events
    assert fold.measure() == measure(events)
