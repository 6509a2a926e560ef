"""Reports, ingest and the database on the command line, as a user runs it."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_ett.cli import main
from airflow_ett.events import LogWriter, RunDir, read_log
from airflow_ett.storage import open_readable

WriteJob = Callable[..., RunDir]
Output = pytest.CaptureFixture[str]
S = 1_000_000_000


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An Airflow home of the test's own."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AIRFLOW__ETT__SQL_ALCHEMY_CONN", raising=False)
    return tmp_path / "home"


def test_ingest_and_report(tmp_path: Path, write_job: WriteJob, capsys: Output) -> None:
    write_job(tmp_path / "runs")
    write_job(tmp_path / "runs", dag_id="other", ended=False)
    assert main(["db", "upgrade"]) == 0
    assert main(["ingest", str(tmp_path / "runs")]) == 0
    assert "2 jobs, 36 new events, 0 bad lines" in capsys.readouterr().out
    assert main(["report", "--dag-id", "ranker", "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)
    assert sum(job["phases_ns"].values()) == job["wall_ns"] == sum(job["levels_ns"].values())
    assert (job["state"], job["nof"], len(job["attempts"])) == ("succeeded", 1, 2)
    assert main(["report"]) == 0
    text = capsys.readouterr().out.replace("\u00a0", " ")
    assert "running, provisional" in text
    assert "ranker.train, run run-1\n" in text
    assert "1 m 30 s  100.0%" in text
    assert "Hosts" in text
    assert "node-a" in text


def test_a_single_run_directory(tmp_path: Path, write_job: WriteJob, capsys: Output) -> None:
    run = write_job(tmp_path / "runs")
    (run.nodes / "bad.jsonl").write_text("nonsense\n")
    main(["db", "upgrade"])
    assert main(["ingest", str(run.path)]) == 0
    output = capsys.readouterr()
    assert "1 jobs, 19 new events, 1 bad lines" in output.out
    assert "nodes/bad.jsonl, byte 0: not a line of JSON" in output.err
    assert main(["report", "--run-id", "none"]) == 0
    assert "No job of run " in capsys.readouterr().out


def test_a_root_in_an_object_store(tmp_path: Path, write_job: WriteJob, capsys: Output) -> None:
    run = write_job(tmp_path / "runs")
    place = open_readable("/".join(("memory://cli", *run.path.parts[-5:])))
    for log in run.logs():
        place.append(log.relative_to(run.path).as_posix(), read_log(log).events)
    main(["db", "upgrade"])
    assert main(["ingest", "memory://cli"]) == 0
    assert "1 jobs, 19 new events, 0 bad lines" in capsys.readouterr().out
    assert main(["ingest", place.place]) == 0
    assert main(["ingest", "nowhere://cli"]) == 1
    assert "airflow-ett: nowhere://cli: Protocol not known" in capsys.readouterr().err


def test_late_evidence_makes_a_revision_that_is_told(
    tmp_path: Path, write_job: WriteJob, capsys: Output
) -> None:
    run = write_job(tmp_path / "runs")
    main(["db", "upgrade"])
    main(["ingest", str(run.path)])
    assert main(["report"]) == 0
    assert "revision" not in capsys.readouterr().out
    (opened, *_) = next(run.logs()).read_text().splitlines()
    state = {"submission": 2, "state": "SUCCEEDED", "ended_ns": json.loads(opened)["time"] + 95 * S}
    late = LogWriter(run.launcher / "late.jsonl", job=json.loads(opened)["job"], writer="late")
    late.append("scheduler_state", state)
    late.close()
    main(["ingest", str(run.path)])
    assert main(["report"]) == 0
    assert "  succeeded, revision 2  " in capsys.readouterr().out


@pytest.mark.parametrize("command", [["report"], ["db", "check"], ["ingest", "."]])
def test_without_a_database_one_line_says_what_to_do(
    command: list[str], home: Path, capsys: Output
) -> None:
    assert main(command) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "airflow-ett db upgrade" in error
    assert not home.exists()


def test_db_check_and_a_wrong_folder(tmp_path: Path, capsys: Output) -> None:
    assert main(["db", "upgrade"]) == main(["db", "check"]) == 0
    assert main(["ingest", str(tmp_path / "none")]) == 1
    assert "does not exist" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_error(
    tmp_path: Path, write_job: WriteJob, capsys: Output
) -> None:
    write_job(tmp_path / "runs")
    main(["db", "upgrade"])
    main(["ingest", str(tmp_path / "runs")])
    command = [sys.executable, "-m", "airflow_ett.cli", "report", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as report:
        assert report.stdout is not None
        assert report.stderr is not None
        report.stdout.close()
        assert report.stderr.read() == b""
    assert report.returncode == 0


def test_a_folder_without_run_directories_is_told(tmp_path: Path, capsys: Output) -> None:
    main(["db", "upgrade"])
    (tmp_path / "empty").mkdir()
    assert main(["ingest", str(tmp_path / "empty")]) == 0
    assert "no run directory lies below" in capsys.readouterr().err


def test_help_tells_the_exit_codes(capsys: Output) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "\n  1  it failed, or a number or a name cannot be used;" in text
    assert "\n  2  an option is unknown, missing or malformed, or the database is" in text


def test_report_starts_without_airflow(tmp_path: Path) -> None:
    main(["db", "upgrade"])
    script = (
        "import sys; from airflow_ett.cli import main; code = main(['report'])\n"
        "heavy = {'airflow', 'alembic', 'torch', 'torchx'} & set(sys.modules)\n"
        "sys.exit(code or (str(heavy) if heavy else 0))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
