"""The agent in torchrun's place: exit codes, signals, grace, replies, orphans."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_ett.events import AttemptId, CursorFile, Kind, read_cursor
from airflow_ett.trainer.agent import Agent


def reply(job: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(job.run_dir.reply(AttemptId(1), 0).read_text())
    return found


def test_success_is_zero_and_the_environment_is_torchruns(job: Any) -> None:
    agent = job.agent(
        """
        import json, os, sys
        names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK",
                 "MASTER_ADDR", "TORCHELASTIC_RESTART_COUNT", "ETT_NODE"]
        line = json.dumps([[os.environ[n] for n in names], os.environ["MASTER_PORT"], sys.argv[1:]])
        os.write(1, line.encode() + b"\\n")
        """,
        "--nproc",
        "2",
    )
    out, err = agent.communicate(timeout=60)
    assert agent.returncode == 0, err
    lines = sorted(json.loads(line) for line in out.splitlines())
    assert [line[0] for line in lines] == [
        [str(k), str(k), "2", "2", "0", "127.0.0.1", "0", "0"] for k in range(2)
    ]
    assert lines[0][1] == lines[1][1] != "0"
    assert [r["exit_code"] for r in reply(job)["ranks"]] == [0, 0]
    assert reply(job)["first_failure_rank"] is None


def test_arguments_after_the_dashes_are_the_scripts(job: Any) -> None:
    script = str(job.script("import sys; print(sys.argv[1:])"))
    agent = job.start(
        "-m", "airflow_ett.trainer.agent", "--script", script, "--", "--lr", "0.1", "--nproc", "9"
    )
    assert agent.communicate(timeout=60)[0] == "['--lr', '0.1', '--nproc', '9']\n"


def test_the_first_failure_stops_the_others_and_gives_the_exit_code(job: Any) -> None:
    agent = job.agent(
        """
        import os, sys, time
        from airflow_ett.trainer import Session
        if os.environ["RANK"] == "1":
            with Session():
                time.sleep(0.3)
                raise KeyError("no such column")
        time.sleep(60)
        """,
        "--nproc",
        "2",
    )
    begun = time.monotonic()
    _, err = agent.communicate(timeout=60)
    assert agent.returncode == 1, err
    assert time.monotonic() - begun < 20
    told = reply(job)
    assert told["first_failure_rank"] == 1
    assert [(r["exit_code"], r["signal"]) for r in told["ranks"]] == [(None, 15), (1, None)]
    error = told["ranks"][1]["error"]
    assert (error["type"], error["message"]) == ("KeyError", "'no such column'")
    assert told["ranks"][0]["error"] is None
    first = min(job.events(Kind.FAILURE), key=lambda event: event.time_ns)
    assert (first.rank, first.data["type"]) == (1, "KeyError")
    assert told["ranks"][1]["end_ns"] <= told["ranks"][0]["end_ns"]


def test_a_worker_killed_by_a_signal_gives_128_and_its_number(job: Any) -> None:
    agent = job.agent("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    agent.communicate(timeout=60)
    assert agent.returncode == 137
    assert (reply(job)["ranks"][0]["signal"], reply(job)["ranks"][0]["exit_code"]) == (9, None)
    ended = [(e.data["role"], e.data["signal"]) for e in job.events(Kind.PROCESS_ENDED)]
    assert ended == [("trainer", 9), ("agent", None)]


def test_the_interval_a_killed_trainer_left_open_is_written_once(job: Any) -> None:
    agent = job.agent("""
        import os, signal, time
        from airflow_ett.trainer import Session
        with Session() as ett:
            for batch in ett.track(range(1, 1000)):
                time.sleep(0.001)
                ett.step(batch)
                if batch == 50:
                    os.kill(os.getpid(), signal.SIGKILL)
    """)
    agent.communicate(timeout=60)
    record = read_cursor(job.run_dir.cursor)
    assert record is not None
    assert record.cursor == 50
    intervals = job.events(Kind.INTERVAL)
    assert sum(e.data["steps"] for e in intervals) == 50
    assert intervals[0].writer.startswith("trainer-1.0.0-r0-p")
    assert len({(e.writer, e.seq) for e in job.events()}) == len(job.events())


def test_what_a_run_left_open_whose_agent_died_with_it_is_written_by_the_next(job: Any) -> None:
    """As after a node's loss: its record is overwritten by the run that the scheduler starts."""
    first = AttemptId(1)
    CursorFile(job.run_dir.cursor).write(*first, 0, 7, 3, 50, 50, 100, 200, 0, 5, 100, 0, 0, 0)
    code = """
        from airflow_ett.trainer import Session
        with Session() as ett:
            for batch in ett.track(range(50, 60), cursor=40):
                ett.step(batch - 49)
    """
    agent = job.agent(code, SLURM_RESTART_COUNT="1")
    agent.communicate(timeout=60)
    left, *_ = (event for event in job.events(Kind.INTERVAL) if event.attempt == first)
    assert (left.writer, left.seq) == ("trainer-1.0.0-r0-p7", 3)
    assert left.data["cursor_to"] == 50


def test_r26_sigterm_leaves_the_workers_their_whole_grace(job: Any) -> None:
    agent = job.agent(
        """
        import signal, sys, time
        def save(*_):
            time.sleep(6)  # longer than what the peers of a failed worker get
            print("saved", flush=True)
            sys.exit(143)
        signal.signal(signal.SIGTERM, save)
        print("ready", flush=True)
        time.sleep(60)
        """,
        "--grace",
        "30",
    )
    assert agent.stdout.readline() == "ready\n"
    sent = time.time_ns()
    agent.terminate()
    out, _ = agent.communicate(timeout=60)
    assert (agent.returncode, out) == (143, "saved\n")
    assert 0 <= reply(job)["sigterm_received_ns"] - sent < 2_000_000_000


STUBBORN = """
    import signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("ready", flush=True)
    time.sleep(60)
"""


def other_node(job: Any, **fields: Any) -> None:
    told = {"node": 1, "first_failure_rank": 1, "sigterm_received_ns": None, **fields}
    path = job.run_dir.reply(AttemptId(1), 1)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(told))


def test_nodes_that_are_stopped_for_anothers_failure_do_not_use_up_the_grace(job: Any) -> None:
    agent = job.agent(STUBBORN, "--grace", "50")
    agent.stdout.readline()
    other_node(job)
    agent.terminate()
    agent.communicate(timeout=20)
    assert agent.returncode == 137


def test_a_node_that_has_saved_earlier_costs_the_others_no_grace(job: Any) -> None:
    agent = job.agent(STUBBORN, "--grace", "6")
    agent.stdout.readline()
    other_node(job, sigterm_received_ns=5)
    sent = time.monotonic()
    agent.terminate()
    agent.communicate(timeout=20)
    assert time.monotonic() - sent >= 6


def test_after_the_grace_comes_sigkill(job: Any) -> None:
    agent = job.agent(
        """
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("ready", flush=True)
        time.sleep(60)
        """,
        "--grace",
        "0.5",
    )
    agent.stdout.readline()
    agent.terminate()
    agent.communicate(timeout=20)
    assert agent.returncode == 137
    assert reply(job)["ranks"][0]["signal"] == 9


SHOWS_THE_NOTICE = """
import os, signal, sys, time
def show(*_):
    os.write(1, open(os.environ["ETT_STOP"], "rb").read() + b"\\n")  # whole: ranks share a pipe
    sys.exit(143)
signal.signal(signal.SIGTERM, show)
os.write(1, b"ready\\n")
time.sleep({rank_1} if os.environ["RANK"] == "1" else 60)
os._exit(3)
"""


def test_workers_are_told_whether_it_is_a_preemption(job: Any) -> None:
    agent = job.agent(SHOWS_THE_NOTICE.format(rank_1=60), "--nproc", "2")
    assert [agent.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
    agent.terminate()
    out, err = agent.communicate(timeout=60)
    assert agent.returncode == 143, err
    assert out.splitlines() == ['{"preemption": true, "grace_s": 20.0}'] * 2


def test_workers_are_told_that_a_peer_has_failed(job: Any) -> None:
    agent = job.agent(SHOWS_THE_NOTICE.format(rank_1=0.5), "--nproc", "2")
    out, err = agent.communicate(timeout=60)
    assert agent.returncode == 3, err
    assert out.splitlines()[2:] == ['{"preemption": false, "grace_s": 5.0}']


@pytest.mark.parametrize(("sigterm_ns", "preemption"), [(None, False), (5, True)])
def test_a_failure_on_another_node_is_no_preemption(
    job: Any, sigterm_ns: int | None, preemption: bool
) -> None:
    """The scheduler ends this node with SIGTERM, too; the other one's agent has replied before."""
    job.run_dir.replies.mkdir()
    other = {"node": 1, "first_failure_rank": 9, "sigterm_received_ns": sigterm_ns}
    job.run_dir.reply(AttemptId(1), 1).write_text(json.dumps(other))
    agent = job.agent(SHOWS_THE_NOTICE.format(rank_1=60))
    agent.stdout.readline()
    agent.terminate()
    out, _ = agent.communicate(timeout=60)
    assert json.loads(out)["preemption"] is preemption
    assert reply(job)["peer_failed"] is not preemption


def test_workers_die_with_the_agent(job: Any) -> None:
    agent = job.agent("""
        import os, time
        print(os.getpid(), flush=True)
        time.sleep(60)
    """)
    worker = int(agent.stdout.readline())
    agent.kill()
    agent.wait()
    until = time.monotonic() + 10
    while Path(f"/proc/{worker}/stat").exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert not Path(f"/proc/{worker}/stat").exists()


def test_what_a_dead_worker_started_does_not_survive_it(job: Any) -> None:
    agent = job.agent("""
        import os, subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        print(child.pid, flush=True)
        os._exit(3)
    """)
    out, _ = agent.communicate(timeout=60)
    assert agent.returncode == 3
    until = time.monotonic() + 10
    state = Path(f"/proc/{int(out)}/stat")
    while state.exists() and " Z " not in state.read_text() and time.monotonic() < until:
        time.sleep(0.02)
    assert not state.exists() or " Z " in state.read_text()


def test_the_heartbeat_is_there_from_the_start(job: Any) -> None:
    agent = job.agent("print('ready', flush=True); import time; time.sleep(60)")
    agent.stdout.readline()
    assert time.time() - job.run_dir.heartbeat(AttemptId(1), 0).stat().st_mtime < 5
    agent.send_signal(signal.SIGTERM)
    agent.wait()


def test_an_unwritable_run_directory_costs_one_line(job: Any) -> None:
    job.run_dir.nodes.write_text("in the way")
    job.run_dir.replies.write_text("in the way")
    agent = job.agent("print('trained')")
    out, err = agent.communicate(timeout=60)
    assert (agent.returncode, out) == (0, "trained\n")
    assert err.count("cannot be written") == 1


def test_outside_a_launched_job_it_just_runs(job: Any, tmp_path: Path) -> None:
    environ = {k: v for k, v in job.environ().items() if k != "ETT_JOB"}
    script = str(job.script("import os; raise SystemExit(int(os.environ['WORLD_SIZE']) + 6)"))
    done = subprocess.run(
        [sys.executable, "-m", "airflow_ett.trainer.agent", "--script", script],
        env=environ,
        check=False,
    )
    assert done.returncode == 7
    assert not list(Path(job.context.run_dir).iterdir())


def test_a_clock_that_jumps_back_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent(
        [],
        SimpleNamespace(peer_failed=lambda: False),
        SimpleNamespace(),
        tmp_path / "stop",
        grace_s=20.0,
    )
    monkeypatch.setattr(signal, "sigtimedwait", lambda *_: None)
    ended_s = time.monotonic()
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now - 3600 * 10**9)
    assert 29 < agent._rest_s(ended_s) <= 30
    agent._terminate()
    assert 19 < agent._rest_s(ended_s) <= 20
