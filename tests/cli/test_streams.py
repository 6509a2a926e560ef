"""Output in any encoding, names that would steer a terminal, streams that are closed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_ett.cli import main
from airflow_ett.events import RunDir
from airflow_ett.metric.report import escaped, table

Change = Callable[[bytes, bytes], Path]
METRIC = [sys.executable, "-m", "airflow_ett.cli", "metric"]


@pytest.fixture
def changed(tmp_path: Path, run: RunDir, lines: Callable[[RunDir], list[bytes]]) -> Change:
    """Write the training's log with one text in the place of another."""

    def change(old: bytes, new: bytes) -> Path:
        content = b"".join(lines(run))
        assert old in content
        (tmp_path / "log.jsonl").write_bytes(content.replace(old, new))
        return tmp_path / "log.jsonl"

    return change


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_any_encoding_will_do(changed: Change, encoding: str) -> None:
    log = changed(b'"ranker"', b'"\\ud800\\u4e00ranker"')
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([*METRIC, log], capture_output=True, env=environment, check=True)
    assert done.stderr == b""
    text = done.stdout.decode(encoding)
    name = "?\u4e00ranker" if encoding == "utf-8" else "??ranker"
    assert f"\n{name}.train, run run-1\n" in text
    if encoding == "ascii":
        assert "1 m 30 s  100.0%" in text
        assert "  -  " in text


def test_what_standard_error_cannot_write_is_written_plain(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [*METRIC, "none–such…\u4e00"]
    done = subprocess.run(command, capture_output=True, env=environment, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(b"airflow-ett: none-such...?: No such file")


def test_names_do_not_steer_the_terminal(
    changed: Change, capsys: pytest.CaptureFixture[str]
) -> None:
    log = changed(b'"ranker"', rb'"x\u001b[2J\u0007y\n\r\u202ez"')
    log.write_bytes(log.read_bytes().replace(b'"replay"', rb'"my\nphase"'))
    assert main(["metric", str(log)]) == 0
    text = capsys.readouterr().out
    assert r"x\x1b[2J\x07y\n\r\u202ez.train, run run-1" in text
    assert not set("\x1b\x07\r\u202e") & set(text)


def test_cells_are_escaped_before_they_are_aligned() -> None:
    assert table([("a\nb", "1"), ("c", "2\u00a0s")], texts=1) == "a\\nb    1\nc     2\u00a0s"
    assert escaped("é \u4e00 \U0001f680 – \x9b\u2028") == "é \u4e00 \U0001f680 – \\x9b\\u2028"


def test_problems_are_told_on_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "peer.jsonl"
    log.write_text(json.dumps({"job_name": "j", "job_start_time": 1, "a\n\x1bb": 2}) + "\n")
    assert main(["import", "ml-goodput", str(log), "-o", str(tmp_path / "out")]) == 0
    told = capsys.readouterr().err
    assert f"{log}, line 1: unknown fields were left out: a\\n\\x1bb\n" in told


@pytest.mark.parametrize(
    ("closing", "code", "told"),
    [
        ("metric - <&-", 1, "airflow-ett: -: standard input is closed; name a file\n"),
        ("import resiliency - <&-", 1, "airflow-ett: -: standard input is closed; name a file\n"),
        ("metric bad <&-", 1, "airflow-ett: bad, byte 0: not a line of JSON"),
        ("metric log.jsonl >&-", 1, "airflow-ett: standard output: it is closed;"),
        ("--help >&-", 1, "airflow-ett: standard output: it is closed;"),
        ("metric log.jsonl 2>&-", 0, ""),
        ("metric bad 2>&-", 1, ""),
    ],
)
def test_a_closed_stream(changed: Change, closing: str, code: int, told: str) -> None:
    folder = changed(b"ranker", b"ranker").parent
    (folder / "bad").write_text("nonsense\n")
    command = f'"{sys.executable}" -m airflow_ett.cli {closing}'
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=folder)
    assert done.returncode == code
    assert done.stderr.startswith(told)
    assert "Traceback" not in done.stderr
    assert ("airflow-ett" in done.stderr) == bool(told)
    assert "airflow-ett: " not in done.stdout
