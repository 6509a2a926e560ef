"""What becomes of the lines of ml-goodput-measurement's recorders."""

from __future__ import annotations

import json
from collections import Counter
from itertools import count, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.events import Event, Kind
from airflow_ett.peers import read_ml_goodput

BEGIN = 1_700_000_000.0


def at(second: float) -> float:
    return BEGIN + second


def started(second: float) -> dict:
    return {"job_name": "j", "job_start_time": at(second)}


def ended(second: float) -> dict:
    return {"job_name": "j", "job_end_time": at(second)}


def step(second: float, number: int) -> dict:
    return {"job_name": "j", "step_count": number, "step_start_time": at(second)}


def custom(second: float, edge: str, kind: str = "eval") -> dict:
    return {
        "job_name": "j",
        "custom_badput_event_type": kind,
        f"custom_badput_event_{edge}_time": at(second),
    }


def save(second: float, length: float, number: int) -> dict:
    return {
        "job_name": "j",
        "event_type": "save",
        "step": number,
        "directory": "gs://bucket/run",
        "checkpoint_manager_blocking_start_time": at(second),
        "checkpoint_manager_blocking_duration_secs": length,
        "wait_for_prev_duration_secs": None,
    }


@pytest.fixture
def tell(read, lines):
    return lambda *entries, **options: read(read_ml_goodput(lines(entries), **options))


def test_a_whole_job(tell) -> None:
    story = tell(
        started(0),
        {"job_name": "j", "tpu_init_start_time": at(0)},
        {"job_name": "j", "tpu_init_end_time": at(1)},
        {"job_name": "j", "training_prep_start_time": at(1)},
        {"job_name": "j", "training_prep_end_time": at(3)},
        {"job_name": "j", "data_loading_start_time": at(3)},
        {"job_name": "j", "data_loading_end_time": at(5)},
        step(5, 0),
        step(8, 1),
        ended(11),
    )
    assert story.problems == []
    assert story.phases == {"device_init": 1, "pre_train": 2, "first_batch": 2, "train": 6}
    assert (story.metric.state, story.metric.dag_id, story.metric.nof) == ("succeeded", "j", 0)


def test_phases_in_a_step_are_taken_out_of_it(tell) -> None:
    """A pause, a blocking save and loading in a thread, all between two starts of a step."""
    story = tell(
        started(0),
        step(1, 0),
        {"job_name": "j", "data_loading_start_time": at(1)},
        custom(3, "start", "SDC check"),
        custom(4, "end", "SDC check"),
        {"job_name": "j", "data_loading_end_time": at(5)},
        save(6, 2, 0),
        step(8, 1),
        ended(10),
    )
    assert story.problems == []
    assert story.phases == {
        "trainer_init": 1,
        "train": 2 + 2 + 2,
        "wasted.sdc_check": 1,
        "checkpoint_save": 2,
    }
    (checkpoint,) = story.metric.checkpoints
    assert (checkpoint.uri, checkpoint.cursor) == ("gs://bucket/run/0", 1)
    assert checkpoint.blocking_ns == 2 * 10**9
    assert {span.lane for span in story.metric.spans} == {"main", "data_loading"}


def test_a_restart_is_a_job_start_and_nothing_else(tell) -> None:
    """A step number that repeats within an attempt is told and begins none."""
    story = tell(started(0), step(1, 0), step(2, 1), step(3, 1), step(4, 2), ended(5))
    assert len(story.metric.attempts) == 1
    assert story.phases == {"trainer_init": 1, "train": 3, "replay": 1}
    assert story.problems == [
        (4, "a step number comes again without a job_start_time: one attempt")
    ]


def test_an_attempt_that_dies_before_its_first_step_counts(tell) -> None:
    story = tell(
        started(0), step(1, 0), step(2, 1), started(10), started(20), step(21, 1), ended(22)
    )
    assert story.metric.nof_by_cause == {"unknown": 2}
    assert len(story.metric.attempts) == 3


@pytest.mark.parametrize(("resumed", "train"), [(1, 2), (2, 3), (3, 3)])
def test_the_last_step_before_a_restart(tell, resumed: int, train: float) -> None:
    """Its end is not in the log. Where the restart goes on after it, it was done, and is taken to
    have lasted as long as the one before it; else the attempt may have died in it.
    """
    story = tell(started(0), step(1, 0), step(2, 1), started(9), step(10, resumed), ended(11))
    assert story.phases["train"] == train
    assert story.phases["failure_detection"] == 7 - (train - 2)
    assert ("taken to have lasted as long" in story.texts) == (resumed > 1)
    assert story.metric.nof == 1


def test_a_last_step_without_a_measure(tell) -> None:
    """One step alone says nothing of how long a step takes."""
    story = tell(started(0), step(1, 0), started(9), step(10, 1), ended(11))
    assert story.phases["train"] == 1
    assert story.texts == "the step before the restart is done, but how long it took is open"


def test_a_step_that_has_begun_is_a_sign_of_life(tell) -> None:
    story = tell(started(0), step(5, 0), started(20), step(21, 0), ended(22))
    assert story.phases == {"trainer_init": 5 + 1, "failure_detection": 15, "train": 1}
    assert story.problems == []


def test_a_pause_within_a_pause(tell) -> None:
    pauses = [custom(3, "start", "outer"), custom(4, "start"), custom(5, "end")]
    story = tell(started(0), step(1, 0), *pauses, custom(6, "end", "outer"), step(8, 1), ended(9))
    assert story.phases == {"trainer_init": 1, "train": 5, "wasted.outer": 2, "wasted.eval": 1}
    assert sum(event.data.get("step_ns", 0) for event in story.events) == 5 * 10**9


def test_the_step_left_may_reach_to_the_next_attempt_at_most(tell) -> None:
    story = tell(
        started(0), step(0, 0), step(8, 1), started(10), started(11), step(20, 2), ended(21)
    )
    assert story.phases["train"] == 8 + 2 + 1
    ends = [e.time_ns for e in story.events if e.kind == Kind.INTERVAL and e.attempt[0] == 1]
    assert max(ends) == at(10) * 10**9


def test_missing_steps_make_the_step_left_no_longer(tell) -> None:
    story = tell(started(0), step(0, 0), step(8, 4), started(15), step(16, 5), ended(17))
    assert story.phases["train"] == 8 + 2 + 1


def test_the_step_left_is_told_once(tell) -> None:
    first = [started(0), step(0, 0), step(2, 1)]
    story = tell(*first, started(9), step(10, 2), ended(11), started(12), step(13, 3), ended(14))
    assert story.phases["train"] == 2 + 2 + 1 + 1
    assert len(story.problems) == 1


def test_a_job_that_starts_again_runs_again(tell) -> None:
    story = tell(started(0), step(1, 0), ended(2), started(5))
    assert (story.metric.state, story.metric.frozen) == ("running", False)


def test_an_end_before_its_beginning_is_left_out(tell) -> None:
    story = tell(started(0), step(1, 0), custom(3, "start"), custom(2, "end"), ended(4))
    assert story.problems == [(4, "wasted.eval ends without a beginning; the end was left out")]
    assert Kind.PHASE_END not in {event.kind for event in story.events}


def test_a_start_after_an_end_is_a_restart(tell) -> None:
    """Recorders write the end when they go, whatever made them go."""
    story = tell(started(0), step(1, 0), ended(2), started(5), step(6, 1), ended(7))
    assert story.metric.nof_by_cause == {"unknown": 1}
    assert story.phases == {"trainer_init": 2, "train": 2, "failure_detection": 3}


def test_steps_that_are_missing_count_with_the_last_one_told(tell) -> None:
    story = tell(started(0), step(1, 0), step(4, 3), ended(5))
    assert story.phases == {"trainer_init": 1, "train": 4}
    assert story.metric.attempts[0].cursor_to == 4
    assert story.problems == [
        (3, "steps before this one are missing: their time counts with the last")
    ]


def test_a_job_without_an_end_is_running(tell) -> None:
    """Its last step has begun: a sign of life, and no training yet."""
    story = tell(started(0), step(1, 0), step(2, 1))
    assert (story.metric.state, story.metric.frozen) == ("running", False)
    assert story.phases == {"trainer_init": 1, "train": 1}
    assert "no job_end_time" in story.texts


@pytest.mark.parametrize(("asked", "compile_s"), [(False, 0), (True, 6)])
def test_the_first_steps_excess_is_compile_only_when_asked(
    tell, asked: bool, compile_s: int
) -> None:
    """The first step takes 8 s, a second of it a pause; the others 1 s on the mean."""
    entries = [
        started(0),
        step(1, 0),
        custom(1, "start"),
        custom(2, "end"),
        step(9, 1),
        step(9.5, 2),
    ]
    story = tell(*entries, step(11, 3), ended(12), first_step_compile=asked)
    assert story.phases.get("compile", 0) == compile_s
    assert story.phases["train"] == 10 - compile_s
    assert story.phases["wasted.eval"] == 1


def test_an_elastic_job(tell) -> None:
    story = tell(
        started(0),
        {
            "job_name": "j",
            "active_slices": 3,
            "total_slices": 4,
            "available_slices": 4,
            "elastic_slice_counts_timestamp": at(0),
        },
        step(1, 0),
        {
            "job_name": "j",
            "elastic_wait_event_type": "slice_down",
            "elastic_wait_start_time": at(2),
        },
        {"job_name": "j", "elastic_wait_event_type": "slice_down", "elastic_wait_end_time": at(4)},
        {"job_name": "j", "elastic_reinit_start_time": at(4)},
        {"job_name": "j", "elastic_reinit_end_time": at(5)},
        ended(6),
    )
    assert story.phases["scheduling.slice_down"] == 2
    assert story.phases["trainer_init.elastic_reinit"] == 1
    assert story.problems == [(2, "slice counts have no place in our log; they were left out")]


def test_several_jobs_and_cloud_logging_entries(read, lines) -> None:
    entries = [started(0), {"jsonPayload": started(0) | {"job_name": "k"}}, ended(1)]
    story = read(read_ml_goodput(lines(entries)))
    assert len({event.job for event in story.events}) == 2
    assert story.texts == "job k has no job_end_time: it is taken to be running still"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"job_name": "j", "step_co', "the last line is torn"),
        ("no JSON\n", "not a line of JSON"),
        ("[1]\n", "not a JSON object"),
        ('{"job_name": "j", "colour": 1, "age": 2}\n', "unknown fields were left out: age, colour"),
        ('{"step_count": 1, "step_start_time": 1700000001}\n', "no job_name; taken for"),
        ('{"job_name": "j", "step_count": -1, "step_start_time": 1}\n', "step_count is no whole"),
        (
            '{"job_name": "j", "step_count": 1, "step_start_time": NaN}\n',
            "step_start_time is no time",
        ),
        (
            '{"job_name": "j", "tpu_init_end_time": 1700000001}\n',
            "device_init ends without a beginning",
        ),
        ('{"job_name": "j", "event_type": "delete"}\n', "event_type delete is unknown"),
        (
            '{"job_name": "j", "event_type": "restore"}\n',
            "restore without checkpoint_manager_start",
        ),
    ],
)
def test_what_cannot_be_brought_over_is_told(read, lines, line: str, problem: str) -> None:
    story = read(read_ml_goodput([*lines([started(0)]), line]))
    assert [number for number, text in story.problems if text.startswith(problem)] == [2]
    assert Kind.SUBMITTED in {event.kind for event in story.events}


def test_phases_without_an_end_or_begun_twice(tell) -> None:
    story = tell(started(0), custom(1, "start"), custom(2, "start"), started(5), ended(6))
    assert story.problems == [
        (3, "wasted.eval begins again: the first one has no end"),
        (4, "wasted.eval has no end before this line"),
    ]


def test_a_phase_around_steps_loses_to_them(tell) -> None:
    """One that begins before the loop, and one that begins in a step, each over the step after."""
    init = {"job_name": "j", "tpu_init_start_time": at(1)}
    done = {"job_name": "j", "tpu_init_end_time": at(5)}
    pause = [custom(7, "start"), step(8, 2), custom(9, "end")]
    story = tell(started(0), init, step(3, 0), done, step(6, 1), *pause, ended(11))
    assert story.phases == {"trainer_init": 1, "device_init": 2, "train": 7, "wasted.eval": 1}
    story = tell(started(0), init, step(3, 0), step(6, 1), ended(9))
    assert story.phases == {"trainer_init": 1, "device_init": 2, "train": 6}


def test_what_happens_before_any_start_begins_an_attempt(tell) -> None:
    story = tell(step(0, 0), step(1, 1), ended(2))
    assert story.phases == {"train": 2}
    assert story.problems == [(1, "no job_start_time yet: the first attempt begins here")]


def test_a_million_steps_stream(lines) -> None:
    """Each line is told before the next one is read: nothing is collected."""
    endless = (json.dumps(step(n, n)) + "\n" for n in count())
    told = [item for item in islice(read_ml_goodput(endless), 1000) if isinstance(item, Event)]
    assert Counter(event.kind for event in told)[Kind.INTERVAL] > 990
    assert [event.seq for event in told] == list(range(len(told)))


@st.composite
def entries(draw):
    second = st.floats(0, 100).map(lambda s: round(s, 3))
    kinds = st.one_of(
        second.map(started),
        second.map(ended),
        st.builds(step, second, st.integers(0, 5)),
        st.builds(custom, second, st.sampled_from(["start", "end"]), st.sampled_from(["a", "b"])),
        st.builds(save, second, second, st.integers(0, 5)),
        second.map(lambda s: {"job_name": "j", "data_loading_start_time": at(s)}),
        second.map(lambda s: {"job_name": "j", "data_loading_end_time": at(s)}),
    )
    return draw(st.lists(kinds, max_size=30))


@given(entries(), st.booleans())
def test_no_log_makes_it_raise(read, lines, drawn, first_step_compile: bool) -> None:
    """Whatever order and nonsense: numbers without a gap, and a partition that is exact."""
    story = read(read_ml_goodput(lines(drawn), first_step_compile=first_step_compile))
    assert [event.seq for event in story.events] == list(range(len(story.events)))
    for event in story.events:
        if event.kind == Kind.INTERVAL:
            assert event.data["step_ns"] == event.data["to"] - event.data["from"] >= 0
    if drawn:
        metric = story.metric
        assert sum(metric.phases_ns.values()) == metric.wall_ns


@pytest.mark.parametrize("time", [1e308, 10**401], ids=["float", "digits"])
def test_a_time_out_of_range_is_told_with_its_line(lines, read, time) -> None:
    story = read(read_ml_goodput(lines([{"job_name": "j", "job_start_time": time}])))
    assert story.problems[0] == (1, "job_start_time is no time in seconds; it was left out")
    assert not story.events
