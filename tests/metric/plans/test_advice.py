"""What to fix next: each lever by hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from airflow_ett.metric.plans.advice import NEEDED, Advice, advise
from airflow_ett.metric.plans.advice import checkpointing as saves
from airflow_ett.metric.plans.advice.gains import Proposal, saving, together
from airflow_ett.metric.plans.advice.jobs import Jobs
from airflow_ett.metric.plans.advice.levers import LEVERS
from airflow_ett.metric.plans.interval import Costs, plan
from airflow_ett.metric.plans.whatif import Overlap, what_if
from tests.metric.plans.made_jobs import HOUR, SECOND, Result, job


def the(key: str, results: Iterable[Result]) -> Advice | None:
    return next((item for item in advise(results).items if item.key == key), None)


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


def saved_s(key: str, *results: Result) -> float:
    found = the(key, results)
    return found.saved_ns / SECOND if found else 0.0


def test_nothing_of_nothing() -> None:
    assert advise([]).items == ()
    assert advise([]).together_points is None


def test_publishing_off_the_accelerators() -> None:
    jobs = [
        job({"train": 9 * HOUR, "publish": HOUR}, run="r1", accelerators=32),
        job({"train": 9 * HOUR, "publish.export": HOUR / 2}, run="r2", accelerators=32, begin_s=1),
        job({"train": 10 * HOUR}, run="r3", accelerators=32, begin_s=2),
    ]
    [item] = advise(jobs).items
    assert item.key == "publish"
    assert item.title == "Publish on a CPU after the anchor checkpoint"
    assert plain(item.evidence) == (
        "2 of 3 runs held 32 accelerators through publish, 45 m 00 s at the median. Add a task "
        "ModelPublishOperator(checkpoint=train.output, ...) in its place: it needs none of them."
    )
    assert item.component == "shutdown"
    assert item.runs == ("r2", "r1")
    assert item.saved_ns == 1.5 * HOUR * SECOND
    assert item.saved_accelerator_ns == 32 * item.saved_ns
    assert item.points == pytest.approx(100 * (28 / 28 - 28 / 29.5))


def test_points_are_of_the_accelerator_hour_weighted_ett() -> None:
    big = job({"train": 6 * HOUR, "publish": 4 * HOUR}, run="big", accelerators=30)
    small = job({"train": 10 * HOUR}, run="small", accelerators=10, begin_s=1)
    found = the("publish", [big, small])
    assert found is not None
    assert found.points == pytest.approx(100 - 100 * (30 * 6 + 10 * 10) / (40 * 10))
    alike = [result | {"accelerators": 0} for result in (big, small)]
    found = the("publish", alike)
    assert found is not None
    assert found.points == pytest.approx(100 - 100 * 16 / 20)
    assert found.saved_accelerator_ns == 0
    assert "held their machines through publish" in found.evidence


def test_jobs_without_ett_are_left_out() -> None:
    known = job({"train": 9 * HOUR, "publish": HOUR})
    silent = job({"publish": 90 * HOUR}, run="silent", begin_s=1, ett_pct=None)
    assert advise([known, silent]) == advise([known])
    assert advise([silent]).items == ()


def test_time_that_holds_nothing_is_worth_points_and_no_accelerator_hours() -> None:
    first = {"train": 5 * HOUR, "failure_detection": 910, "retry_wait": 1810}
    found = advise([job(first, {"train": 5 * HOUR})])
    assert [(item.key, item.saved_ns // SECOND) for item in found.items] == [
        ("retry_wait", 1800),
        ("failure_detection", 900),
    ]
    assert not any(item.saved_accelerator_ns for item in found.items)
    assert plain(found.items[0].evidence) == (
        "After 1 attempt in 1 of 1 run the next one was submitted 30 m 10 s later, at the median. "
        "10.0 s are assumed to remain."
    )


COLD = {"compile": 2000, "compiles": [{"s": 2000, "misses": 9}]}
WARM = {"compile": 40, "compiles": [{"s": 40, "hits": 9}]}
TRAINS = {"train": 5 * HOUR}


def test_cold_compilations_take_what_hits_took() -> None:
    jobs = [
        job(COLD | TRAINS, COLD | TRAINS, run="r1"),
        job(WARM | TRAINS, run="r2", begin_s=1),
        job(COLD | TRAINS, run="r3", begin_s=2),
    ]
    found = the("compile_cache", jobs)
    assert found is not None
    # The first one of all had nothing to find.
    assert found.saved_ns == 2 * (2000 - 40) * SECOND
    assert plain(found.evidence) == (
        "2 of 3 runs compiled cold in every attempt, 33 m 20 s each at the median; attempts that "
        "hit the cache took 40.0 s. Add ett.compile_cache(model) before the first compilation."
    )
    assert found.runs == ("r3", "r1")
    assert found.component == "pt2_compile"


def test_without_a_hit_an_eighth_is_assumed() -> None:
    found = the("compile_cache", [job(COLD | TRAINS, COLD | TRAINS)])
    assert found is not None
    assert found.saved_ns == 1750 * SECOND
    assert plain(found.evidence) == (
        "1 of 1 run compiled cold in every attempt, 33 m 20 s each at the median. No hit was seen: "
        "an eighth of it is assumed to remain. Add ett.compile_cache(model) before the first "
        "compilation."
    )


def test_what_is_known_of_another_task_says_nothing_of_this_one() -> None:
    jobs = [
        job(COLD | TRAINS, COLD | TRAINS, task="a"),
        job(WARM | TRAINS, WARM | TRAINS, task="b", run="r2", begin_s=1),
    ]
    found = the("compile_cache", jobs)
    assert found is not None
    assert found.saved_ns == 1750 * SECOND
    assert plain(found.evidence).startswith("1 of 2 runs compiled cold in every attempt")
    assert "would remain, or an eighth." in found.evidence


def test_some_attempts_compile_cold() -> None:
    found = the("compile_cache", [job(COLD | TRAINS, COLD | TRAINS, WARM | TRAINS)])
    assert found is not None
    assert plain(found.evidence).startswith("1 attempt in 1 of 1 run compiled cold, 33 m 20 s each")


def test_compilations_of_several_nodes_count_once() -> None:
    both = {"compile": 2000, "compiles": 2 * [{"s": 2000, "misses": 9}]}
    assert saved_s("compile_cache", job(both | TRAINS, both | TRAINS)) == 1750


@pytest.mark.parametrize(
    "row",
    [{"lane": "other", "misses": 1}, {"hits": None, "misses": None}, {"hits": 0, "misses": 0}],
    ids=["beside the training", "caches unknown", "caches unused"],
)
def test_compilations_that_no_cache_would_help(row: dict[str, Any]) -> None:
    attempt = {"compile": 2000, "compiles": [{"s": 2000} | row]}
    assert the("compile_cache", [job(attempt | TRAINS, attempt | TRAINS)]) is None


def test_what_can_be_done_at_once() -> None:
    first = {"first_batch": 500, "compile": 700, "preproc_creation": 900} | TRAINS
    second = {"first_batch": 300, "compile": 100, "train_module_creation": 60} | TRAINS
    both = {"preproc_creation": 400, "train_module_creation": 500} | TRAINS
    jobs = [job(first, second, both)]
    assert saved_s("fast_batch", *jobs) == 500 + 100
    assert saved_s("parallel_init", *jobs) == 400
    found = the("fast_batch", jobs)
    assert found is not None
    assert plain(found.evidence) == (
        "2 attempts in 1 of 1 run fetched their first batch and compiled in turn. At once, the "
        "shorter of both is saved, 5 m 00 s at the median. Add ett.fast_batch(run) before "
        "ett.track, with a run(batch) that returns the loss."
    )
    changes = [Overlap(("first_batch", "compile"))]
    assert found.saved_ns == what_if(jobs, changes).saved_ns


def failing(count: int, *, save_s: float, every_s: float, **more: float) -> Result:
    """``count`` failures, each of which repeats half an interval of 8 h of training an attempt."""
    each = 8 * HOUR
    fails = {"train": each, "checkpoint_save": each / every_s * save_s, "replay": every_s / 2}
    attempts = [{"train": each, "checkpoint_save": fails["checkpoint_save"]}]
    attempts += [fails | more] * count
    return job(*attempts, nos=round((count + 1) * each / every_s))


def test_another_interval() -> None:
    seldom = failing(3, save_s=15, every_s=HOUR)
    found = the("checkpoint_interval", [seldom])
    assert found is not None
    # T = 32 h + the saves' 8 min, F = 3, b = 15 s: sqrt(2 x 15 x 115680 / 3).
    assert plain(found.title) == "Save every 17 m 56 s instead of 1 h 00 m"
    assert plain(found.evidence) == (
        "3 failures had 1 h 30 m of training repeated; a save blocks for 15.0 s. What both waste "
        "together is least at 17 m 56 s. "
        'ett.checkpointer(..., every_s="auto") finds it by itself; ETT_CHECKPOINT_EVERY_S in the '
        "operator's env goes before what the code says."
    )
    ratio = 1075.5 / 3615
    seen = 1.5 * HOUR * (1 - ratio) - 480 * (1 / ratio - 1)
    assert found.saved_ns / SECOND == pytest.approx(seen, rel=0.01)
    assert found.component == "wasted"
    often = the("checkpoint_interval", [failing(3, save_s=15, every_s=100)])
    assert often is not None
    assert plain(often.title).startswith("Save every 19 m 11 s instead of 1 m 55 s")


def test_another_interval_gains_what_is_expected_but_no_more_than_was_lost() -> None:
    def lost(replay_s: float) -> Result:
        attempt = TRAINS | {"checkpoint_save": 75, "replay": replay_s}
        return job(TRAINS | {"checkpoint_save": 75}, attempt, attempt, attempt, nos=20)

    # T = 20 h 5 min, b = 15 s: 3615 s between saves, best are 850.3 s.
    expected = plan(Costs(15, 3, 20 * HOUR + 300), current_s=3615).saving_s
    assert expected == pytest.approx(3171.6, abs=0.1)
    assert saved_s("checkpoint_interval", lost(5000)) == pytest.approx(expected)
    assert saved_s("checkpoint_interval", lost(1000)) == pytest.approx(1318.9, abs=0.1)
    assert saved_s("checkpoint_interval", lost(300)) == 0


def test_saves_take_a_twentieth_of_the_time_at_most() -> None:
    # sqrt(2 b T / F) would be 3502 s; 20 b are more than the hour that else is the most.
    found = the("checkpoint_interval", [failing(20, save_s=200, every_s=4 * HOUR)])
    assert found is not None
    assert plain(found.title) == "Save every 1 h 07 m instead of 4 h 03 m"


def test_an_interval_needs_failures_and_saves() -> None:
    assert the("checkpoint_interval", [failing(0, save_s=60, every_s=HOUR)]) is None
    assert the("checkpoint_interval", [failing(3, save_s=60, every_s=HOUR) | {"nos": 0}]) is None


def test_the_interval_is_that_of_the_task_which_gains_most() -> None:
    costly = failing(3, save_s=15, every_s=HOUR) | {"task_id": "big"}
    cheap = failing(3, save_s=15, every_s=2 * HOUR) | {"task_id": "small", "job": "x"}
    found = the("checkpoint_interval", [costly, cheap | {"accelerators": 1, "run_id": "r2"}])
    assert found is not None
    assert found.title.endswith(" in big")
    assert found.runs == ("r1",)


def test_the_interval_is_one_that_a_trainer_would_choose() -> None:
    from airflow_ett.trainer import autointerval as auto

    ours = (saves.LEAST_S, saves.LEAST_SAVES, saves.MOST_S)
    assert ours == (auto.LEAST_S, auto.LEAST_SAVES, auto.MOST_S)


def test_saves_beside_the_training() -> None:
    lost = {"train": 9 * HOUR, "checkpoint_save": HOUR}
    waited = [{"saved_ns": 9, "committed_ns": 8}]
    beside = [{"saved_ns": 8, "committed_ns": 9}]
    assert saved_s("background_saves", job(lost, nos=60, checkpoints=waited)) == 0.75 * HOUR
    assert saved_s("background_saves", job(lost, nos=60, checkpoints=beside)) == 0
    assert saved_s("background_saves", job(lost, nos=60)) == 0  # nothing tells
    found = the("background_saves", [job(lost)])  # a trainer that saves by itself
    assert found is not None
    assert plain(found.evidence) == (
        "In 1 of 1 run the training waited for its saves to be written, 1 h 00 m a job at the "
        "median. A quarter of it is assumed to remain, for the copy. "
        "ett.checkpointer(..., background=True) writes beside the training, as it does by default."
    )


def test_waiting_and_evaluating() -> None:
    jobs = [job({"train": 8 * HOUR, "data_wait": HOUR, "evaluation": HOUR})]
    assert saved_s("data_wait", *jobs) == HOUR / 2
    assert saved_s("evaluation", *jobs) == HOUR
    found = the("data_wait", jobs)
    assert found is not None
    assert "all told 10.0% of the wall clock" in found.evidence


def test_a_stall_that_is_ended_costs_a_recovery() -> None:
    jobs = [job({"train": 5 * HOUR, "stalled": HOUR}, {"train": 5 * HOUR, "compile": 300})]
    assert saved_s("stalls", *jobs) == HOUR - 60 - 300
    alone = [job({"device_init": 240, "train": 5 * HOUR, "stalled": HOUR})]
    assert saved_s("stalls", *alone) == HOUR - 60 - 240
    found = the("stalls", alone)
    assert found is not None
    assert plain(found.evidence) == (
        "1 attempt in 1 of 1 run stood still, 1 h 00 m at the median. To end one takes 1 m 00 s "
        "and a recovery of 4 m 00 s."
    )


def test_the_cause_that_costs_most_of_those_a_team_can_end() -> None:
    again = {"compile": 600, "replay": 1200} | TRAINS
    jobs = [
        job(
            TRAINS | {"cause": "out_of_memory"},
            again | {"cause": "preempted"},
            again | {"cause": "out_of_memory"},
            again,
        ),
        job(TRAINS | {"cause": "application"}, again, run="r2", begin_s=1),
        job(*4 * [again | {"cause": "infrastructure"}], run="r3", begin_s=2),
    ]
    found = the("failures", jobs)
    assert found is not None
    assert found.title == "Make the training fit into memory"
    assert found.saved_ns == pytest.approx(2 * 1800 * SECOND, abs=20)
    assert plain(found.evidence) == (
        "2 of 7 failures came from a lack of memory, in 1 of 3 runs. The recoveries took 1 h 00 m."
    )
    assert found.runs == ("r1",)
    assert the("failures", jobs[2:]) is None


def test_the_cause_that_costs_most_is_weighed_by_accelerators() -> None:
    again = {"compile": 600} | TRAINS
    full = job(TRAINS | {"cause": "out_of_memory"}, again, accelerators=32)
    raises = {"cause": "application", "compile": 700} | TRAINS
    several = job(raises, raises, again, run="r2", begin_s=1, accelerators=1)
    found = the("failures", [full, several])
    assert found is not None
    assert found.runs == ("r1",)


def test_what_is_worth_little_is_not_told() -> None:
    assert the("publish", [job({"train": 9990, "publish": 10})]) is not None
    assert the("publish", [job({"train": 9991, "publish": 9})]) is None


def test_a_job_without_accelerators_among_others_weighs_nothing() -> None:
    with_some = job({"train": 9 * HOUR, "publish": HOUR})
    without = job({"publish": 9 * HOUR, "train": HOUR}, run="r2", begin_s=1, accelerators=0)
    found = the("publish", [with_some, without])
    assert found is not None
    assert found.points == pytest.approx(10)
    assert found.saved_accelerator_ns == 8 * HOUR * SECOND


def test_a_recovery_that_failed_says_nothing_of_what_one_takes() -> None:
    stood = {"train": 5 * HOUR, "stalled": HOUR}
    jobs = [job(stood, {"compile": 300, "train": 5 * HOUR}, {"compile": 500, "train": 5 * HOUR})]
    assert saved_s("stalls", *jobs) == HOUR - 60 - 400
    jobs[0]["ttr"][1]["recovered"] = False
    assert saved_s("stalls", *jobs) == HOUR - 60 - 300


def test_the_best_first() -> None:
    waits = {"train": 8 * HOUR, "retry_wait": 2 * HOUR}
    found = advise([job(waits, {"train": 8 * HOUR, "evaluation": HOUR})])
    assert [item.key for item in found.items] == ["evaluation", "retry_wait"]
    assert found.items[0].points < found.items[1].points
    found = advise([job({"train": 8 * HOUR, "data_wait": HOUR, "evaluation": HOUR, "queue": 9})])
    assert [item.key for item in found.items] == ["evaluation", "data_wait"]


def test_gains_together() -> None:
    # The cache leaves 400 s of the second compilation, and these are the shorter of both then.
    attempt = {"compile": 3200, "first_batch": 1000, "compiles": [{"s": 3200, "misses": 1}]}
    jobs = Jobs([job(attempt | TRAINS, attempt | TRAINS)])
    both = proposed(jobs, "compile_cache", "fast_batch")
    assert [saving(jobs, one).weighed.total() // (8 * SECOND) for one in both] == [2800, 2000]
    assert together(jobs, both) == (2800 + 1000 + 400) * 8 * SECOND
    assert together(jobs, both[1:]) == 2000 * 8 * SECOND


def test_two_that_shorten_the_same_phase_take_shares() -> None:
    waits = {"train": 5 * HOUR, "retry_wait": 1000, "cause": "application"}
    preempted = waits | {"cause": "preempted"}
    jobs = Jobs([job(waits, preempted, TRAINS)])
    both = proposed(jobs, "failures", "retry_wait")
    # Half of both waits goes with the failure; of the other half all but its share of 10 s.
    assert together(jobs, both[:1]) == 1000 * 8 * SECOND
    assert together(jobs, both) == 2 * (500 + 990 / 2) * 8 * SECOND


def proposed(jobs: Jobs, *keys: str) -> list[Proposal]:
    proposals = [one for key in keys if (one := LEVERS[key](jobs))]
    assert len(proposals) == len(keys)
    return proposals


def test_a_measured_job(history) -> None:
    history.open().submit(0).state(0, allocated=0).session(0, 0).phase("compile", 0, 400)
    history.train(400, 1000, (0, 100)).phase("publish", 1000, 1200)
    history.session_ended(1200).ended(1200, None).job_ended(1200)
    result = history.measure().as_dict()
    assert set(result) >= NEEDED
    [item] = advise([result]).items
    assert (item.key, item.saved_ns) == ("publish", 200 * SECOND)
    assert item.points == pytest.approx(60 - 50)
