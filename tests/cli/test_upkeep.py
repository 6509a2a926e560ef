"""``db check``, ``prune``, ``export`` and ``rebuild``, as a user runs them."""

import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_ett.cli import main
from airflow_ett.cli.upkeep import Progress, _bytes
from airflow_ett.events import RunDir

WriteJob = Callable[..., RunDir]
Output = pytest.CaptureFixture[str]
S = 1_000_000_000


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An Airflow home of the test's own, with a database."""
    home = tmp_path / "home"
    monkeypatch.setenv("AIRFLOW_HOME", str(home))
    monkeypatch.delenv("AIRFLOW__ETT__SQL_ALCHEMY_CONN", raising=False)
    assert main(["db", "upgrade"]) == 0
    return home


@pytest.fixture
def runs(home: Path, write_job: WriteJob, capsys: Output) -> Path:
    """The run root, with a job of 2020 and one that lives, both ingested."""
    write_job(home / "ett" / "runs", begin_ns=1_600_000_000 * S)
    write_job(home / "ett" / "runs", dag_id="live", ended=False)
    main(["ingest", str(home / "ett" / "runs")])
    capsys.readouterr()
    return home / "ett" / "runs"


def _sql(home: Path, statement: str) -> None:
    connection = sqlite3.connect(home / "ett" / "ett.db")
    connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    "command",
    [["db", "check"], ["db", "upgrade"], ["report"], ["ingest", "."], ["db", "prune"]],
)
def test_tables_that_were_changed_are_refused_in_one_line(
    command: list[str], home: Path, capsys: Output
) -> None:
    _sql(home, "ALTER TABLE ett_job DROP COLUMN tts_ns")
    assert main(command) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "ett_job has no column tts_ns" in error
    assert "Nothing was changed. Restore the database whole, or move" in error


def test_a_strange_table_is_told_and_harms_nothing(home: Path, capsys: Output) -> None:
    _sql(home, "CREATE TABLE ett_mine (x TEXT)")
    assert main(["db", "check"]) == 0
    output = capsys.readouterr()
    assert "up to date" in output.out
    assert "table ett_mine is not airflow-ett's" in output.err


def test_prune_says_what_would_go_and_then_removes_it(
    runs: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["db", "prune"]) == 0
    output = capsys.readouterr()
    assert output.out == ""
    assert "nothing is pruned: none of [ett] keep_events, keep_run_dirs" in output.err
    monkeypatch.setenv("AIRFLOW__ETT__KEEP_EVENTS", "90d")
    monkeypatch.setenv("AIRFLOW__ETT__KEEP_CHECKPOINTS", "90d")
    assert main(["db", "prune", "--dry-run"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"Would go +How many +About +Oldest", head)
    assert len({len(line) for line in (head, rows[-1])}) == 1
    assert re.fullmatch(r"events +19 +\d\.\d kB +2020-09-13 12:26:40 UTC", rows[-1])
    assert main(["db", "prune", "--json"]) == 0
    found = {one["what"]: one for one in json.loads(capsys.readouterr().out)}
    assert (found["events"]["count"], found["bad lines"]["count"]) == (19, 0)
    assert found["events"]["oldest_ns"] == 1_600_000_000 * S
    main(["db", "prune"])
    assert re.search(r"events +0 +0 B +–", capsys.readouterr().out)
    assert main(["report", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2


def test_a_bad_age_is_one_line(runs: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__ETT__KEEP_RUN_DIRS", "soon")
    assert main(["db", "prune"]) == 1
    assert capsys.readouterr().err == (
        "airflow-ett: [ett] keep_run_dirs: is a number of days or hours such as 90d or 36h, or "
        "empty, not 'soon'\n"
    )


def test_export_and_rebuild(runs: Path, tmp_path: Path, home: Path, capsys: Output) -> None:
    assert main(["db", "export", str(runs)]) == 1
    assert "export to another folder" in capsys.readouterr().err
    assert main(["db", "export", "s3://bucket/out"]) == 1
    assert "export to a folder, and copy that there" in capsys.readouterr().err
    assert main(["db", "export", str(tmp_path / "out"), "--dag-id", "ranker", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["jobs"], done["events"], done["kept"]) == (1, 19, 0)
    assert main(["db", "export", str(tmp_path / "out")]) == 0
    assert "2 jobs, 36 events, " in capsys.readouterr().out

    (home / "ett" / "ett.db").unlink()
    main(["db", "upgrade"])
    capsys.readouterr()
    assert main(["db", "rebuild", str(tmp_path / "out"), "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done == {"from_logs": 2, "from_events": 0, "kept": 0, "problems": [], "days": 1}
    assert main(["db", "rebuild", str(runs)]) == 0
    text = capsys.readouterr().out
    assert "2 jobs made again from logs, 0 from the database's events; 0 kept as they were" in text
    assert main(["db", "rebuild", str(tmp_path / "none")]) == 1
    assert "ROOT: " in capsys.readouterr().err


def test_an_interrupted_rebuild_says_how_to_go_on(
    runs: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("airflow_ett.store.rebuild._from_logs", stop)
    assert main(["db", "rebuild", str(runs)]) == 130
    assert "--resume" in capsys.readouterr().err


def test_progress_is_told_every_two_seconds(capsys: Output) -> None:
    clock = SimpleNamespace(now=0.0)
    progress = Progress("jobs", lambda: clock.now)
    for done in range(0, 100, 10):
        progress(done, 1000)
        clock.now += 0.5
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "airflow-ett: 40 of 1,000 jobs, 20 a second",
        "airflow-ett: 80 of 1,000 jobs, 20 a second",
    ]


def test_sizes() -> None:
    sizes = {0: "0 B", 999: "999 B", 1000: "1.0 kB", 999_949: "999.9 kB", 999_950: "1.0 MB"}
    assert {count: _bytes(count) for count in sizes} == sizes
    assert _bytes(5 * 10**16) == "50000.0 TB"


def test_help_names_the_actions(capsys: Output) -> None:
    with pytest.raises(SystemExit):
        main(["db", "--help"])
    text = capsys.readouterr().out
    for action in ("upgrade", "check", "prune", "export", "rebuild"):
        assert f"    {action} " in text
