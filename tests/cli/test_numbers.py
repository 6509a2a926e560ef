"""``interval``, ``whatif`` and ``compare``, and what a wrong command line is told."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.cli import main
from airflow_ett.events import RunDir

Lines = Callable[[RunDir], list[bytes]]
Output = pytest.CaptureFixture[str]
S = 1_000_000_000


def test_interval_from_numbers(show: Any, capsys: Output) -> None:
    found = show("interval", "--blocking", "15", "--failures-per-day", "3", "--current", "3600")
    assert (round(found["optimal_interval_s"], 1), round(found["wtt_pct"], 2)) == (929.5, 3.23)
    wasted = {point["interval_s"]: round(point["wtt_pct"], 2) for point in found["curve"]}
    assert (wasted[300], wasted[3600]) == (5.52, 6.67)
    assert round(found["current"]["wtt_pct"], 2) == 6.67
    bounded = ["interval", "--blocking", "15", "--failures-per-day", "3", "--max", "600"]
    assert main(bounded) == 0
    text = capsys.readouterr().out.replace("\u00a0", " ")
    assert "Optimal interval: 10 m 00 s, wastes 3.5%" in text
    assert "A save blocks for 15.0 s, 3 failures a day." in text
    assert "Lost in 24 h 00 m of training:" in text
    assert "optimal  10 m 00 s" in text


def test_interval_from_jobs(run: RunDir, show: Any, capsys: Output) -> None:
    found = show("interval", run.path)
    (job,) = show("metric", run.path)
    trained = job["levels_ns"]["effective"] + job["levels_ns"]["steady"]
    assert (found["blocking_s"], found["failures"], found["time_s"]) == (1.0, 1, trained / S)
    assert found["current"]["interval_s"] == trained / S / job["nos"]
    assert main(["interval", str(run.path), "--current", "30"]) == 0
    assert "Current interval: 30.0\u00a0s, wastes" in capsys.readouterr().out


def test_whatif(run: RunDir, show: Any, capsys: Output) -> None:
    (job,) = show("metric", run.path)
    found = show("whatif", run.path, "--reduce", "launcher_init=50%", "--reduce", "replay=1.5s")
    assert found["ett_pct_before"] == job["ett_pct"] < found["ett_pct_after"]
    assert sum(gain["saved_ns"] for gain in found["changes"]) == found["saved_ns"]
    assert [gain["change"] for gain in found["changes"]][1] == "replay less 1.5 s"
    assert main(["whatif", str(run.path), "--overlap", "replay,retry_wait"]) == 0
    assert "replay, retry_wait at the same time" in capsys.readouterr().out
    assert main(["whatif", str(run.path)]) == 0
    assert "replay less 50%" in capsys.readouterr().out


def test_compare(tmp_path: Path, run: RunDir, show: Any, capsys: Output, lines: Lines) -> None:
    # Without its second attempt it ends where the first one failed.
    short = tmp_path / "short.jsonl"
    short.write_bytes(b"".join(line for line in lines(run) if b"[2,0,0]" not in line))
    found = show("compare", "--before", run.path, "--after", short, run.path)
    assert (found["before"]["jobs"], found["after"]["jobs"]) == (1, 1)
    assert found["change_ppm"] == 0
    found = show("compare", "--before", run.path, "--after", short)
    gains = [part["gain_ppm"] for part in found["parts"].values()]
    assert sum(gains) == found["change_ppm"] != 0
    assert main(["compare", "--before", str(short), "--after", str(run.path)]) == 0
    text = capsys.readouterr().out
    assert [line.split()[0] for line in text.splitlines()[3:]] == [*found["parts"], "All"]


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (["metric", "none.jsonl"], "none.jsonl: No such file"),
        (["metric", "."], ". is no run directory"),
        (["metric", "/dev/null"], "no event is in /dev/null"),
        (["interval"], "give either"),
        (["interval", "log", "--blocking", "1", "--failures-per-day", "1"], "give either"),
        (["interval", "--blocking", "-1", "--failures-per-day", "1"], "blocking: -1 is not"),
    ],
)
def test_one_line_says_what_is_wrong(
    command: list[str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Output,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(command) == 1
    error = capsys.readouterr().err
    assert error.startswith("airflow-ett: ")
    assert error.count("\n") == 1
    assert problem in error


@pytest.mark.parametrize(
    "option",
    [
        ["metric", "log", "--exclude", "2026-01-02/2026-01-01"],
        ["metric", "log", "--exclude", "2026-01-02"],
        ["metric", "log", "--now", "today"],
        ["whatif", "log", "--reduce", "compile"],
        ["whatif", "log", "--reduce", "compile=101%"],
        ["whatif", "log", "--overlap", "compile"],
        ["compare", "--before", "log"],
    ],
)
def test_a_wrong_command_line(option: list[str], capsys: Output) -> None:
    with pytest.raises(SystemExit) as caught:
        main(option)
    assert caught.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_of_a_short_text_is_no_error() -> None:
    command = [sys.executable, "-m", "airflow_ett.cli", "interval", "--blocking", "1"]
    with subprocess.Popen(
        [*command, "--failures-per-day", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={},
    ) as done:
        assert done.stdout is not None
        assert done.stderr is not None
        done.stdout.close()
        assert done.stderr.read() == b""
    assert done.returncode == 0


def test_a_command_that_is_interrupted_just_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("airflow_ett.cli.numbers.Jobs", interrupt)
    assert main(["metric", "-"]) == 130
    assert tuple(capsys.readouterr()) == ("", "")
