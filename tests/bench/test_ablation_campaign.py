"""The rows of the ablation, its workload, and which runs are due."""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import ablation.campaign
import ett
import pytest
from ablation.campaign import Campaign, check, make_all
from ablation.drive import HOST, Training
from ablation.kept import Kept
from ablation.rows import ALL, BASELINE, FULL, QUICK
from ablation.workload import MODULE

from airflow_ett.config import SWITCHES
from tests.bench.made_runs import lives, made
from tests.bench.tiny import TINY


def test_each_row_pulls_levers_beyond_the_one_before() -> None:
    for before, after in pairwise(FULL):
        assert before.levers < after.levers
        assert after.beyond(before)
    assert FULL[1].beyond(BASELINE) == ("compile_cache",)
    assert (QUICK[0], QUICK[-1].levers) == (BASELINE, ALL.levers)
    # Autotuning has no row: on a CPU it tunes next to nothing.
    assert set(SWITCHES) - ALL.levers == {"autotune"}


def test_rows_differ_in_their_levers_alone() -> None:
    bare, full = (TINY.arguments(row, 1, 5.0) for row in (BASELINE, ALL))
    assert [one for one in bare if one not in full] == [
        "--publish=in_trainer",
        *(f"--no-{name}" for name in ("compile-cache", "fast-batch", "parallel-init")),
        *(f"--no-{name}" for name in ("lean-communication", "warm-recovery", "background-saves")),
        "--no-parcels",
    ]


def test_an_earlier_job_of_the_dag_has_the_same_levers_and_no_failure() -> None:
    row = FULL[-1]
    assert row.beyond(ALL) == ("earlier_job",)
    arguments = TINY.earlier(row, 5.0)
    assert not [one for one in arguments if one.startswith("--inject")]
    assert set(arguments) - set(TINY.arguments(row, 1, 5.0)) <= {f"--samples={100 * 64}"}


def test_failures_are_the_same_in_all_rows_and_others_in_each_repetition() -> None:
    assert TINY.kills(1) == TINY.kills(1) != TINY.kills(2)
    one, two = TINY.kills(1)
    assert 0 < one < two < TINY.samples


def test_the_sweep_varies_one_input_at_a_time_around_the_workload() -> None:
    swept = list(TINY.sweep())
    assert len(swept) == 12
    assert sum(workload == TINY for _, _, workload in swept) >= 4
    assert TINY.digest() != replace(TINY, publish_s=9.0).digest()
    assert TINY.digest() == replace(TINY, expected_s=(1.0, 1.0)).digest()


def test_what_was_run_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made_now = []

    def make(self: Campaign, due: ablation.campaign.Due) -> object:
        run = made(
            due.row.name, *lives((20, 20)), repetition=due.repetition, workload=TINY.digest()
        )
        made_now.append((due.repetition, due.row.name))
        kept.add(run)
        return run

    monkeypatch.setattr(Campaign, "make", make)
    kept = Kept(tmp_path, "c0de")
    campaign = Campaign(TINY, QUICK, 2, kept)
    make_all([(campaign, QUICK[1:2])])
    assert next(map(campaign.expected_s, campaign.due(QUICK[:1]))) == 100
    make_all([(Campaign(TINY, QUICK, 2, Kept(tmp_path, "c0de")), QUICK)])
    names = [row.name for row in QUICK]
    # There and back: what is slower an hour later meets all rows alike.
    assert made_now == [(n, names[1]) for n in (1, 2)] + [
        (n, names[at]) for n, order in ((1, (0, 2)), (2, (2, 0))) for at in order
    ]
    assert list(campaign.runs()) == names
    assert "run 1 of 4: baseline, repetition 1; about" in capsys.readouterr().err
    assert list(Campaign(TINY, QUICK, 2, Kept(tmp_path, "0ther")).runs()) == []


def test_other_inputs_are_other_runs(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "c0de")
    kept.add(made("baseline", *lives((20, 20)), workload=TINY.digest()))
    assert list(Campaign(TINY, QUICK, 1, kept).runs()) == ["baseline"]
    assert list(Campaign(replace(TINY, publish_s=9.0), QUICK, 1, kept).runs()) == []


def test_each_attempt_has_a_host_of_its_own(tmp_path: Path) -> None:
    code = "import sys, tempfile; print(__name__, *sys.argv, tempfile.gettempdir())"
    (tmp_path / "trainer.py").write_text(code)
    command = [sys.executable, str(HOST), str(tmp_path), "trainer", "--x=1"]
    environ = os.environ | {"PYTHONPATH": str(tmp_path)}
    told = [subprocess.check_output(command, env=environ, text=True).split() for _ in range(2)]
    # What runs a module puts its file in the place of the first argument.
    assert [one[:3] for one in told] == [["__main__", str(tmp_path / "trainer.py"), "--x=1"]] * 2
    places = {Path(one[3]) for one in told}
    assert len(places) == 2
    assert {place.parent for place in places} == {tmp_path}


def test_tuned_rows_share_an_interval_that_follows_from_the_row_before(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "c0de")
    campaign = Campaign(TINY, FULL, 2, kept)
    tuned, later = FULL[5], FULL[6]
    assert campaign.every_s(FULL[4]) == TINY.every_s
    with pytest.raises(SystemExit, match="follows from a row before it"):
        campaign.every_s(tuned)
    attempts = lives((20, 2))
    attempts[2] |= {"checkpoint_save": 10}
    kept.add(made(FULL[4].name, *attempts, saves=20, workload=TINY.digest()))
    found = campaign.every_s(tuned)
    assert found == pytest.approx((2 * 0.5 * 310 / 2) ** 0.5, abs=0.1)
    kept.add(made(tuned.name, *attempts, every_s=7.0, workload=TINY.digest()))
    assert campaign.every_s(tuned) == campaign.every_s(later) == 7.0


def test_a_run_that_went_otherwise_is_not_kept() -> None:
    def run(cursor: int = TINY.samples, sent: int = 9) -> dict:
        result = dict(made("a", *lives((20, 20))).result)
        for attempt in result["attempts"]:
            attempt["evidence"] = {"signal": sent, "text": "It was killed."}
        result["attempts"][-1]["cursor_to"] = cursor
        return result

    check(run(), TINY, 1)
    with pytest.raises(RuntimeError, match="trained up to 6,336 instead of 6,400"):
        check(run(cursor=6336), TINY, 1)
    with pytest.raises(RuntimeError, match="to be killed 2 times, and failed so: It was killed"):
        check(run(sent=15), TINY, 1)


def test_without_a_gpu_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = SimpleNamespace(
        cuda=SimpleNamespace(is_available=lambda: False), __version__="2.13.0+cpu"
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(sys, "argv", ["ett.py", "--gpu"])
    with pytest.raises(SystemExit, match=r"needs an NVIDIA GPU.*Nothing was measured"):
        ett.main()


@pytest.mark.torch
def test_a_training_fails_twice_and_is_measured() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("torchx")
    # Not below pytest's folder, whose path is too long for sockets.
    with TemporaryDirectory(prefix="ett-") as name:
        folder = Path(name)
        arguments = [*TINY.arguments(ALL, 1, 0.2), f"--registry={folder / 'registry'}"]
        training = Training(folder, MODULE, arguments, retry_delay_s=0.1)
        replace(training, arguments=TINY.earlier(ALL, 0.2), run_id="earlier").run()
        result, checkpoint = training.run()
    check(result, TINY, 1)
    first = {one["lever"]: one["outcome"] for one in result["attempts"][0]["levers"]}
    assert first["warm_recovery"] == "used"
    assert [attempt["layer"] for attempt in result["attempts"]] == ["first", "airflow", "airflow"]
    assert result["state"] == "succeeded"
    assert result["ett_pct"] > 0
    assert checkpoint is not None
