"""``metric``: jobs straight from logs, whatever state these are in."""

import io
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_ett import config
from airflow_ett.cli import main
from airflow_ett.events import CursorFile, RunDir, read_log
from airflow_ett.launch.root import Root
from airflow_ett.store import upgrade

WriteJob = Callable[..., RunDir]
Lines = Callable[[RunDir], list[bytes]]
Output = pytest.CaptureFixture[str]
S = 1_000_000_000
BEGIN = 1_790_000_000 * S


def test_a_run_directory_reads_as_the_database_has_it(
    tmp_path: Path, run: RunDir, show: Any, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    (measured,) = show("metric", run.path)
    main(["db", "upgrade"])
    main(["ingest", str(run.path)])
    capsys.readouterr()
    (stored,) = show("report")
    assert measured.items() <= stored.items()
    assert measured["effective_ns"] == 40 * S
    assert main(["metric", str(run.path)]) == 0
    text = capsys.readouterr().out.replace("\u00a0", " ")
    assert "ranker.train, run run-1\n" in text
    assert "1 m 30 s  100.0%" in text


def test_jobs_mixed_in_files_are_told_apart(
    tmp_path: Path, write_job: WriteJob, show: Any, lines: Lines
) -> None:
    runs = [write_job(tmp_path / "runs", dag_id=name) for name in ("ranker", "other")]
    apart = [show("metric", run.path)[0] for run in runs]
    halves = [tmp_path / "even.jsonl", tmp_path / "odd.jsonl"]
    mixed = [line for pair in zip(*map(lines, runs), strict=True) for line in pair]
    for path, part in zip(halves, (mixed[::2], mixed[1::2][::-1]), strict=True):
        path.write_bytes(b"".join(part))
    assert show("metric", *halves) == apart
    assert show("metric", halves[0], *halves, runs[1].path) == apart


def test_bad_lines_are_told_with_their_place_and_lose_nothing(
    tmp_path: Path,
    run: RunDir,
    show: Any,
    capsys: Output,
    monkeypatch: pytest.MonkeyPatch,
    lines: Lines,
) -> None:
    good = show("metric", run.path)
    first, *rest = lines(run)
    # A broken line, one without an event, a blank one; the last lost its newline.
    content = b"".join([first, b"nonsense\n", b"{}\n", b"\n", *rest]).removesuffix(b"\n")
    log = tmp_path / "log.jsonl"
    log.write_bytes(content)
    assert main(["metric", str(log), "--json"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out) == good
    told = output.err.splitlines()
    assert told[0].startswith(f"airflow-ett: {log}, byte {len(first)}: not a line of JSON")
    assert told[1].startswith(f"airflow-ett: {log}, byte {len(first) + 9}: job is missing")
    assert len(told) == 2

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content[:-5])))
    assert main(["metric", "-", "--json"]) == 0
    output = capsys.readouterr()
    assert output.err.splitlines()[0].startswith("airflow-ett: standard input, line 2: not a line")
    assert len(output.err.splitlines()) == 3
    assert len(json.loads(output.out)) == 1


@pytest.mark.parametrize("cut", [1, 5])
def test_the_last_line_of_a_run_directory_waits_for_its_newline(
    run: RunDir, show: Any, capsys: Output, cut: int
) -> None:
    *_, last = run.logs()
    content = last.read_bytes()
    last.write_bytes(content[: content[:-1].rfind(b"\n") + 1])
    without = show("metric", run.path)
    last.write_bytes(content[:-cut])
    assert main(["metric", str(run.path), "--json"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out) == without
    assert output.err == ""
    last.write_bytes(content)
    assert show("metric", run.path) != without


def test_of_many_bad_lines_the_first_ten_are_told(
    tmp_path: Path, run: RunDir, capsys: Output, lines: Lines
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"".join([b"nonsense\n" * 1000, *lines(run)]))
    assert main(["metric", str(log)]) == 0
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 11
    assert told[-1] == f"airflow-ett: {log}: lines that are no events: 1000 in all"


def live(tmp_path: Path, write_job: WriteJob, ago: int) -> RunDir:
    """A training that still runs; its last event is ``ago`` seconds old."""
    return write_job(tmp_path / "live", begin_ns=time.time_ns() - (90 + ago) * S, ended=False)


def test_a_run_directory_that_shows_life_is_measured_until_now(
    tmp_path: Path, write_job: WriteJob, show: Any
) -> None:
    run = live(tmp_path, write_job, ago=3600)
    (silent,) = show("metric", run.path)
    last = silent["begin_ns"] + 90 * S
    assert (silent["frozen"], silent["end_ns"]) == (False, last)
    (run.nodes / "heartbeat-2.0-n0").touch()
    before = time.time_ns()
    (alive,) = show("metric", run.path)
    assert before <= alive["end_ns"] <= time.time_ns()


def test_the_present_of_a_file_is_its_newest_event_or_told(
    tmp_path: Path, write_job: WriteJob, show: Any, lines: Lines
) -> None:
    run = live(tmp_path, write_job, ago=0)
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"".join(lines(run)))
    (job,) = show("metric", log)
    last = job["begin_ns"] + 90 * S
    assert job["end_ns"] == last
    assert show("metric", log, "--now", str(last + 5 * S))[0]["end_ns"] == last + 5 * S


def test_what_a_live_job_does_and_why_it_is_doubted_is_told(
    tmp_path: Path, write_job: WriteJob, capsys: Output, lines: Lines
) -> None:
    log = tmp_path / "log.jsonl"
    kept = [line for line in lines(write_job(tmp_path, ended=False)) if b"process" not in line]
    log.write_bytes(b"".join(kept))
    window = f"{BEGIN + 33 * S}/{BEGIN + 38 * S}"
    assert main(["metric", str(log), "--exclude", window]) == 0
    text = capsys.readouterr().out.replace("\u00a0", " ")
    assert "events of writer trainer-1.0.0-r0-p101 are missing: 1;" in text
    assert "\nleft out: 5.0 s of planned maintenance\n" in text
    assert "\nnow: train; no progress since 2026-09-21 14:14:50 UTC; at risk: 20.0 s\n" in text


def test_a_job_without_a_name_is_shown_by_its_id(
    tmp_path: Path, run: RunDir, capsys: Output, lines: Lines
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"".join(line for line in lines(run) if b"job_opened" not in line))
    assert main(["metric", str(log)]) == 0
    job = json.loads(lines(run)[0])["job"]
    text = capsys.readouterr().out
    assert f"\n\njob {job}\n" in text
    assert text.splitlines()[1].startswith(f"job {job}  ")


def test_the_interval_still_open_counts(tmp_path: Path, write_job: WriteJob, show: Any) -> None:
    run = live(tmp_path, write_job, ago=0)
    (before,) = show("metric", run.path)
    begin = before["begin_ns"] + 90 * S
    cursor = CursorFile(run.cursor)
    opened = (begin, begin + 2 * S, 2000, 10, 2 * S, 0, 0, 0)
    cursor.write(2, 0, 0, 0, 102, 99, 2400, 2000, *opened)
    cursor.close()
    (after,) = show("metric", run.path)
    assert after["effective_ns"] == before["effective_ns"] + 2 * S


@pytest.fixture(params=["in memory", "at the API"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], str]]:
    """Return the address of a job that has no run directory."""
    if request.param == "in memory":
        from fsspec.implementations.memory import MemoryFileSystem

        yield lambda job: f"memory://runs/{job}"
        MemoryFileSystem.store.clear()
        MemoryFileSystem.pseudo_dirs[:] = [""]
        return
    pytest.importorskip("fastapi")
    from tests.api.server import SECRET, serving

    url = f"sqlite:///{tmp_path}/ett.db"
    upgrade(url)
    with serving(url) as api:
        monkeypatch.setenv("AIRFLOW__ETT__API_URL", api.url)
        monkeypatch.setenv("AIRFLOW__ETT__API_SECRET", SECRET)
        yield api.place


def test_a_job_elsewhere_reads_as_its_run_directory(
    tmp_path: Path, write_job: WriteJob, show: Any, place: Callable[[str], str], capsys: Output
) -> None:
    run = live(tmp_path, write_job, ago=0)
    cursor = CursorFile(run.cursor)
    (before,) = show("metric", run.path)
    begin = before["begin_ns"] + 90 * S
    cursor.write(2, 0, 0, 0, 102, 99, 2400, 2000, begin, begin + 2 * S, 2000, 10, 2 * S, 0, 0, 0)
    cursor.close()
    storage = Root.of(config.load()).open(place(before["job"]))
    assert main(["metric", storage.place]) == 1
    assert "LOG: no event is at" in capsys.readouterr().err
    for log in run.logs():
        storage.append(f"{log.parent.name}/{log.name}", read_log(log).events)
    storage.write("cursor", run.cursor.read_bytes())
    storage.write("nodes/heartbeat-2.0-n0", b"")
    (here,), (there,) = show("metric", run.path), show("metric", storage.place)
    assert here["effective_ns"] == before["effective_ns"] + 2 * S
    assert abs(there["wall_ns"] - here["wall_ns"]) < 20 * S
    for name in ("job", "state", "effective_ns", "nof", "hwm"):
        assert there.get(name) == here.get(name), name


def test_planned_maintenance_leaves_every_clock(run: RunDir, show: Any) -> None:
    # The run waits from second 32 to 40 for its next try, and starts until 50.
    (job,) = show("metric", run.path)
    begin = BEGIN + 33 * S
    window = f"{begin}/2026-09-21T14:13:58Z"
    (shorter,) = show("metric", run.path, "--exclude", window)
    assert shorter["excluded_ns"] == 5 * S
    assert shorter["wall_ns"] == job["wall_ns"] - 5 * S == sum(shorter["phases_ns"].values())


def test_the_components_are_the_configured_ones(
    run: RunDir, show: Any, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    (job,) = show("metric", run.path)
    monkeypatch.setenv("AIRFLOW__ETT__PHASE_COMPONENTS", "replay=shutdown")
    monkeypatch.setenv("AIRFLOW__ETT__COMPONENT_OWNERS", "shutdown=night-shift")
    (moved,) = show("metric", run.path)
    gained = moved["components_ns"]["shutdown"] - job["components_ns"]["shutdown"]
    assert gained == job["phases_ns"]["replay"] > 0
    assert main(["metric", str(run.path)]) == 0
    assert "night-shift" in capsys.readouterr().out


def test_times_on_the_command_line_mean_utc_unless_they_say_otherwise(
    tmp_path: Path, write_job: WriteJob, show: Any, lines: Lines
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"".join(lines(write_job(tmp_path, ended=False))))
    ends = {
        show("metric", log, "--now", time)[0]["end_ns"]
        for time in ("2026-09-21T14:14:55", "2026-09-21T16:14:55+02:00", "2026-09-21T14:14:55Z")
    }
    assert ends == {BEGIN + 95 * S}
