"""What an ablation prints, and which targets it looks at."""

from pathlib import Path

import pytest
from ablation.campaign import Campaign
from ablation.kept import Kept
from ablation.rows import BASELINE, QUICK, Row
from ablation.tables import tell_ablation, tell_sweep

from tests.bench.made_runs import lives, made
from tests.bench.tiny import TINY

LIVES = {
    "baseline": lives((24, 24), first_batch_s=5, retry_s=10, publish_s=40),
    "+ compile cache, fast batch": lives((24, 2), first_batch_s=1, retry_s=10, publish_s=40),
    "all": lives((23, 2)),
}


def campaign(folder: Path, *rows: Row, repetitions: int = 1) -> Campaign:
    """Rows that have run."""
    kept = Kept(folder, "c0de")
    for row in rows:
        attempts = LIVES[row.name]
        for attempt in attempts[1:]:
            attempt["levers"] = [{"lever": "compile_cache", "outcome": "used"}]
        for repetition in range(1, repetitions + 1):
            run = made(row.name, *attempts, repetition=repetition, workload=TINY.digest(), saves=4)
            kept.add(run)
    return Campaign(TINY, QUICK, repetitions, kept)


def test_the_full_form_has_targets_of_its_own(tmp_path: Path) -> None:
    told = tell_ablation(campaign(tmp_path, *QUICK), full=True)
    found = {target.name: target for target in told.targets}
    wall_s = 3 * 29 + 2 * 11 + 300 + 40
    assert found["ETT% of the baseline, as in the paper"].value == pytest.approx(30_000 / wall_s)
    assert found["ETT% baseline to all"].value == pytest.approx(
        30_000 / (27 + 2 + 300) - 30_000 / wall_s
    )
    assert found["compiling on restart is shorter than cold"].value == 12
    # From 29 to 23 s at the start, from 40 to 3 s at a recovery.
    assert found["TTR falls by more than TTS"].value == pytest.approx(37 / 6)
    assert found["TTR falls by more than TTS"].met


def test_a_start_that_gets_no_shorter_is_nothing_to_compare_a_recovery_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIVES, "all", lives((29, 2)))
    found = {t.name: t for t in tell_ablation(campaign(tmp_path, *QUICK), full=False).targets}
    assert not found["TTR falls by more than TTS"].met


def test_the_quick_form_prints_all_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = tell_ablation(campaign(tmp_path, *QUICK, repetitions=2), full=False)
    shown = capsys.readouterr().out
    assert len(told.targets) == 3
    for text in (
        "baseline, 2 runs",
        "from first to last",
        "failures: equal",
        "detection: equal",
        "saved s",
        "points (a target of the full form alone)",
        "all: nothing is expected of parallel_init, lean_communication, warm_recovery",
        "compile_cache used 4 x",
    ):
        assert text in shown
    assert set(told.content) == {"rows", "equal", "split", "predictions"}


def test_an_ablation_in_pieces_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = tell_ablation(campaign(tmp_path, *QUICK[:2]), full=False)
    assert told.targets == []
    assert "no target is looked at: all has not run yet" in capsys.readouterr().out


def test_the_sweep_has_a_line_for_each_value_that_ran(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = campaign(tmp_path, BASELINE, QUICK[-1])
    both = Campaign(TINY, (QUICK[0], QUICK[-1]), 1, Kept(tmp_path, "c0de"))
    table = tell_sweep([("publish time", "5 s", both), ("publish time", "9 s", ran)])
    assert [(row["input"], row["value"]) for row in table] == [("publish time", "5 s")]
    line = next(one for one in capsys.readouterr().out.splitlines() if "5 s" in one)
    before, after = (30_000 / 449, 30_000 / 329)
    assert f"{after - before:+.1f}" in line
