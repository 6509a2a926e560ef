"""``airflow-ett import``."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from airflow_ett.cli import main
from airflow_ett.events import decode
from airflow_ett.metric import measure

GOODPUT = [
    {"job_start_time": 0.0},
    {"step_count": 0, "step_start_time": 5.0},
    {"step_count": 1, "step_start_time": 13.0},
    {"step_count": 2, "step_start_time": 16.0},
    {"job_end_time": 19.0},
]
RESILIENCY = [
    {"event_type": "job_started", "timestamp": "2025-04-01T12:00:00"},
    {"event_type": "checkpoint_loaded", "timestamp": "2025-04-01T12:00:01", "step": 0},
    {"event_type": "checkpoint_saved", "timestamp": "2025-04-01T12:00:04", "step": 9},
]


@pytest.fixture
def log(tmp_path: Path):
    def write(entries, end: str = "") -> str:
        lines = (json.dumps({"job_name": "j"} | entry) + "\n" for entry in entries)
        (tmp_path / "peer.jsonl").write_text("".join(lines) + end)
        return str(tmp_path / "peer.jsonl")

    return write


def ett_pct(lines: bytes | str) -> float | None:
    return measure(decode(line) for line in lines.splitlines()).ett_pct


@pytest.mark.parametrize(
    ("arguments", "entries", "expected"),
    [
        (["ml-goodput"], GOODPUT, 1400 / 19),
        (["ml-goodput", "--first-step-compile"], GOODPUT, 900 / 19),
        (["resiliency"], RESILIENCY, 75.0),
    ],
)
def test_events_on_standard_output_and_in_a_file(
    log, tmp_path, capsysbinary, arguments, entries, expected
) -> None:
    assert main(["import", *arguments, log(entries)]) == 0
    printed = capsysbinary.readouterr().out
    assert ett_pct(printed) == pytest.approx(expected)
    out = tmp_path / "ours.jsonl"
    assert main(["import", *arguments, log(entries), "-o", str(out)]) == 0
    assert out.read_bytes() == printed


def test_standard_input(monkeypatch, capsysbinary) -> None:
    lines = "".join(json.dumps({"job_name": "j"} | entry) + "\n" for entry in GOODPUT)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    assert main(["import", "ml-goodput", "-"]) == 0
    assert ett_pct(capsysbinary.readouterr().out) == pytest.approx(1400 / 19)


def test_problems_name_their_line_once(log, capsys) -> None:
    file = log([*GOODPUT, {"colour": 1}, {"colour": 2}], end='{"job_na')
    assert main(["import", "ml-goodput", file]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"airflow-ett: {file}, line 6: unknown fields were left out: colour",
        f"airflow-ett: {file}, line 8: the last line is torn",
        f"airflow-ett: {file}: 2 times: unknown fields were left out: colour",
    ]


def test_another_format_fails(log, capsys) -> None:
    file = log(GOODPUT)
    assert main(["import", "resiliency", file]) == 1
    assert f"{file}: no event of this format is in it" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "nonsense\n", '{"job_name":"j","job_start_time":1e999}\n'])
def test_a_file_keeps_what_it_has_where_nothing_could_be_read(tmp_path, capsys, content) -> None:
    (tmp_path / "in").write_text(content)
    (tmp_path / "keep").write_text("what it has")
    arguments = ["import", "ml-goodput", str(tmp_path / "in"), "-o", str(tmp_path / "keep")]
    assert main(arguments) == 1
    assert (tmp_path / "keep").read_text() == "what it has"
    assert "no event of this format is in it" in capsys.readouterr().err


def test_the_file_that_is_read_is_never_written(log, capsys) -> None:
    file = log(GOODPUT)
    before = Path(file).read_bytes()
    assert main(["import", "ml-goodput", file, "-o", file]) == 1
    assert Path(file).read_bytes() == before
    assert "is the file that is read" in capsys.readouterr().err


def test_a_file_that_is_not_there(tmp_path, capsys) -> None:
    out = tmp_path / "out"
    assert main(["import", "ml-goodput", str(tmp_path / "none"), "-o", str(out)]) == 1
    assert "No such file" in capsys.readouterr().err
    assert not out.exists()
