"""What becomes of the six kinds of events of resiliency's goodput_measure.

Source of the primer and of the log: https://github.com/AI-Hypercomputer/resiliency/blob/main/
examples/goodput_measurement/README.md
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.events import Event
from airflow_ett.peers import read_resiliency

BEGIN = datetime(2025, 4, 1, 12, tzinfo=UTC)
KINDS = (
    "user_scheduled",
    "user_terminated",
    "job_started",
    "job_terminated",
    "checkpoint_loaded",
    "checkpoint_saved",
)


def told(second: float, kind: str, **fields: float) -> dict:
    """An event as the tracker writes it: local time without a zone."""
    time = (BEGIN + timedelta(seconds=second)).replace(tzinfo=None).isoformat()
    return {"timestamp": time, "job_name": "j", "event_type": kind, **fields}


@pytest.fixture
def tell(read, lines):
    return lambda *entries: read(read_resiliency(lines(entries)))


def test_the_primer(tell) -> None:
    """Minutes as seconds. The peer: 50% (50 steps at the ideal 2 of 200). Ours: 67.5%.

    Its log has neither the ideal step time nor the saves' own time: what the peer books to slow
    steps (25) and to saving (10) trained, as far as the log tells. Its lost progress (40) is what
    nothing tells of, its restart (15) the detection, its loading (10) the trainer's start.
    """
    story = tell(
        told(0, "job_started", node_rank=0),
        told(5, "checkpoint_loaded", step=25),
        told(60, "checkpoint_saved", step=50),
        told(100, "job_terminated", node_rank=0),
        told(115, "job_started", node_rank=0),
        told(120, "checkpoint_loaded", step=50),
        told(200, "checkpoint_saved", step=75),
        told(200, "job_terminated", node_rank=0),
    )
    ideal = 2 * (75 - 25)
    assert 100 * ideal / 200 == 50
    assert story.metric.ett_pct == 67.5
    assert story.phases == {
        "trainer_init": 5 + 5,
        "train": 55 + 80,
        "unattributed": 40,
        "failure_detection": 15,
    }
    assert story.phases["train"] == ideal + 25 + 10
    assert story.metric.nof_by_cause == {"unknown": 1}
    assert story.metric.nos == 2
    assert story.texts == "how job j ended is not told: it stays provisional"


def test_its_example_log(tell) -> None:
    """Seconds after 04:51:00 of its example. The peer, told 2.569 ms a step: 21.72%.

    Between its loads and its last saves lie 32.0 of 118.3 s: ours 27.0%, without a reference.
    """
    first = [29.376985, 35.775347, 37.153714, 38.505679, 39.863866, 41.196246, 42.528565, 43.860838]
    second = [100.627857, 102.189783, 103.491595, 104.81006, 106.185741, 107.544125, 108.881336]
    second += [110.207887, 111.524989, 112.847352, 114.193366, 115.475204, 116.741096]
    first.append(45.199876)
    story = tell(
        told(0.492242, "job_started", node_rank=0),
        told(first[0], "checkpoint_loaded", step=0),
        *(told(time, "checkpoint_saved", step=500 * n) for n, time in enumerate(first[1:], 1)),
        told(47.533941, "job_terminated", node_rank=0),
        told(67.013451, "job_started", node_rank=0),
        told(second[0], "checkpoint_loaded", step=4000),
        *(told(time, "checkpoint_saved", step=500 * n) for n, time in enumerate(second[1:], 9)),
        told(118.746024, "job_terminated", node_rank=0),
    )
    wall = 118.746024 - 0.492242
    assert round(100 * 10_000 * 0.002569 / wall, 2) == 21.72
    trained = first[-1] - first[0] + second[-1] - second[0]
    assert story.metric.wall_ns == round(wall * 10**6) * 1000
    assert story.metric.ett_pct == pytest.approx(100 * trained / wall)
    assert round(story.metric.ett_pct, 1) == 27.0
    assert (story.metric.nos, story.metric.nof) == (20, 1)


def test_several_nodes_are_one_attempt(tell) -> None:
    """A node that starts a second time begins the next one; a late goodbye is its own attempt's."""
    story = tell(
        told(0, "user_scheduled"),
        told(10, "job_started", node_rank=0),
        told(11, "job_started", node_rank=1),
        told(15, "checkpoint_loaded", step=0),
        told(25, "checkpoint_saved", step=10),
        told(30, "job_terminated", node_rank=0),
        told(31, "job_started", node_rank=0),
        told(31.5, "job_terminated", node_rank=1),
        told(32, "job_started", node_rank=1),
        told(35, "checkpoint_loaded", step=10),
        told(45, "checkpoint_saved", step=20),
    )
    assert [str(attempt.id) for attempt in story.metric.attempts] == ["1.0.0", "2.0.0"]
    assert story.phases["queue"] == 10
    assert story.phases["train"] == 20
    assert [event.kind for event in story.events].count("session_started") == 2
    goodbyes = [event for event in story.events if event.kind == "process_ended"]
    assert [(e.attempt.submission, e.data["node"]) for e in goodbyes] == [(1, 0), (1, 1)]


def test_a_new_node_after_all_had_gone_is_a_new_attempt(tell) -> None:
    story = tell(
        told(0, "job_started", node_rank=0),
        told(5, "job_terminated", node_rank=0),
        told(9, "job_started", node_rank=7),
    )
    assert len(story.metric.attempts) == 2


def test_starts_that_never_load_are_failures(tell) -> None:
    """The peer keeps the last of several starts in a row and counts none."""
    story = tell(*(told(second, "job_started", node_rank=0) for second in (0, 10, 20)))
    assert story.metric.nof_by_cause == {"unknown": 2}


@pytest.mark.parametrize("again", [False, True])
def test_a_users_stop_is_no_failure(tell, again: bool) -> None:
    start = [told(0, "job_started", node_rank=0), told(5, "user_terminated")]
    gone = told(6, "job_terminated", node_rank=0)
    story = tell(*start, gone, *([told(9, "job_started", node_rank=0)] if again else []))
    assert story.metric.nof == 0
    assert story.metric.state == ("running" if again else "cancelled")
    assert story.metric.attempts[0].cause == ("user_restart" if again else "user_cancelled")


def test_time_without_a_load_is_no_training(tell) -> None:
    story = tell(
        told(0, "job_started", node_rank=0),
        told(10, "checkpoint_saved", step=10.0),
        told(20, "checkpoint_saved", step=20.0),
    )
    assert story.phases == {"trainer_init": 10, "train": 10}
    assert (2, "a save without a load before it: training before it is not told") in story.problems


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (
            {"event_type": "job_started", "timestamp": "2025-04-01"},
            "no job_name; the line was left out",
        ),
        (told(1, "job_paused"), "event_type 'job_paused' is unknown; the line was left out"),
        (
            told(1, "job_started") | {"timestamp": "noon"},
            "timestamp is no time; the line was left out",
        ),
        (told(1, "checkpoint_loaded"), "checkpoint_loaded names no step; the line was left out"),
        (
            told(1, "checkpoint_saved", step=1.5),
            "checkpoint_saved names no step; the line was left out",
        ),
        (told(1, "job_terminated", node_rank=3), "a node terminated that had not started"),
        (told(1, "job_terminated", colour=3), "unknown fields were left out: colour"),
        (told(-1, "job_terminated"), "the line is older than one before it"),
    ],
)
def test_what_cannot_be_brought_over_is_told(tell, entry: dict, problem: str) -> None:
    story = tell(told(0, "job_started", node_rank=0), entry)
    assert [line for line, text in story.problems if text.startswith(problem)] == [2]


def test_a_stop_or_a_checkpoint_before_any_start(tell) -> None:
    story = tell(told(0, "user_terminated"), told(1, "checkpoint_loaded", step=3))
    assert story.problems[:2] == [
        (1, "a stop before any start; the line was left out"),
        (2, "checkpoint_loaded before any job_started: an attempt begins here"),
    ]


EVENTS = st.builds(
    told,
    st.integers(0, 100),
    st.sampled_from(KINDS),
    step=st.integers(0, 5),
    node_rank=st.integers(0, 2),
)


@given(st.lists(EVENTS, max_size=30))
def test_no_log_makes_it_raise(read, lines, drawn) -> None:
    story = read(read_resiliency(lines(drawn)))
    assert [event.seq for event in story.events] == list(range(len(story.events)))
    assert all(isinstance(event, Event) for event in story.events)
    if story.events:
        assert sum(story.metric.phases_ns.values()) == story.metric.wall_ns


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"timestamp": 1e308}, "timestamp is no time; the line was left out"),
        ({"timestamp": 10**401}, "timestamp is no time; the line was left out"),
        ({"node_rank": 10**401}, "node_rank is no whole number; the line was left out"),
        ({"node_rank": "two"}, "node_rank is no whole number; the line was left out"),
        (
            {"event_type": "checkpoint_saved", "step": 10**401},
            "checkpoint_saved names no step; the line was left out",
        ),
    ],
)
def test_a_number_out_of_range_is_told_with_its_line(lines, read, change, problem) -> None:
    entry = {"job_name": "j", "event_type": "job_started", "timestamp": 5, **change}
    assert read(read_resiliency(lines([entry]))).problems == [(1, problem)]
