"""What the metric expects of a row's levers, and where a saving came from."""

import pytest
from ablation.predict import predict, tuned_interval
from ablation.split import PAPER, saved, split, why

from tests.bench.made_runs import lives, made

COLD = made("baseline", *lives((24, 24), first_batch_s=5, retry_s=10, publish_s=20)).result
CACHED = made("cached", *lives((24, 3), first_batch_s=5, retry_s=10, publish_s=20)).result


def saving(saves: int, save_s: float, replay_s: float) -> dict:
    """A run of 100 s of training, with saves that block and with two failures."""
    last = {"train": 34, "replay": replay_s / 2, "checkpoint_save": saves * save_s}
    attempts = [{"train": 33}, {"train": 33, "replay": replay_s / 2}, last]
    return dict(made("a", *attempts, saves=saves).result)


def test_a_lever_of_the_metric_is_asked_for_what_it_is_worth() -> None:
    found = predict(("baseline", [COLD]), ("cached", [CACHED]), ("compile_cache",), 10.0)
    # An eighth is assumed to remain of 24 s, and 3 s did.
    assert found.predicted == pytest.approx(found.realised)
    assert found.realised == pytest.approx(CACHED["ett_pct"] - COLD["ett_pct"])
    assert found.off == pytest.approx(0.0)
    assert found.silent == ()


def test_several_levers_are_expected_together() -> None:
    levers = ("fast_batch", "lean_communication", "immediate_retry", "standalone_publish")
    attempts = lives((24, 3))
    for attempt, left_s in zip(attempts, (0, 2, 2), strict=True):
        attempt["first_batch"] = left_s
    best = made("all", *attempts).result
    found = predict(("cached", [CACHED]), ("all", [best]), levers, 10.0)
    # Of 5 s and 24 or 3 s the shorter ones go: 11 s; and 20 s of waiting, 20 s of publishing.
    wall_s = CACHED["wall_ns"] / 1e9
    assert found.predicted == pytest.approx(100 * 300 * (1 / (wall_s - 11 - 20 - 20) - 1 / wall_s))
    assert found.off == pytest.approx(0.0)
    assert found.silent == ("lean_communication",)


def test_an_earlier_job_is_worth_what_a_restart_finds() -> None:
    warm = made("next", *lives((3, 3), first_batch_s=5, retry_s=10, publish_s=20)).result
    found = predict(("cached", [CACHED]), ("next", [warm]), ("earlier_job",), 10.0)
    assert found.predicted == pytest.approx(found.realised)
    assert found.realised > 0
    assert found.silent == ()
    once = dict(CACHED, attempts=CACHED["attempts"][:1])
    assert predict(("a", [once]), ("b", [warm]), ("earlier_job",), 10.0).silent == ("earlier_job",)


def test_the_interval_is_the_one_that_the_plan_finds() -> None:
    before = saving(saves=10, save_s=0.5, replay_s=10)
    # sqrt(2 x 0.5 s x 105 s / 2) is less than 20 times the blocking, which is the least.
    assert tuned_interval([before], to_background=False) == 10.0
    # A quarter of each save is expected to block then.
    assert tuned_interval([before], to_background=True) == pytest.approx(
        (0.125 * 105) ** 0.5, abs=0.1
    )
    with pytest.raises(ValueError, match="no failure"):
        tuned_interval([before | {"nof": 0}], to_background=False)


def test_an_interval_is_worth_what_was_wasted_less_what_is_to_be() -> None:
    before = saving(saves=10, save_s=0.1, replay_s=10)
    after = saving(saves=25, save_s=0.1, replay_s=4)
    found = predict(("a", [before]), ("b", [after]), ("tuned_interval",), 4.0)
    assert found.predicted == pytest.approx(found.realised, abs=0.5)
    assert found.realised == pytest.approx(100 * 100 * (1 / 106.5 - 1 / 111), abs=0.01)


def test_saves_between_the_steps_are_a_part_of_their_own() -> None:
    before, after = saving(10, 0.5, replay_s=10), saving(10, 0.1, replay_s=4)
    assert saved([before], [after]) == pytest.approx(
        {"recovery": 6, "shutdown": 0, "checkpoint": 4, "start": 0, "steady": 0}
    )


def test_the_split_and_its_reasons_follow_from_the_runs() -> None:
    best = made("all", *lives((24, 3), first_batch_s=0)).result
    shares = split([COLD], [best])
    assert sum(shares.values()) == pytest.approx(100)
    # 2 x (21 + 5 + 10) s in recovery, 20 s of publishing, 5 s of 29 s at the start: what is left
    # of that weighs more in the shorter run.
    assert shares["recovery"] > shares["shutdown"] > 0 > shares["start"]
    assert saved([COLD], [best]) == pytest.approx(
        {"recovery": 72, "shutdown": 20, "checkpoint": 0, "start": 5, "steady": 0}
    )
    assert set(PAPER) < set(shares)
    told = why([COLD], [best], shares)
    assert "compile 42.0 s shorter, retry_wait 20.0 s shorter" in told
    assert "20.0 s of publishing were chosen" in told
    assert f"Recovery has {shares['recovery']:.0f}% (paper: 58%)" in told
