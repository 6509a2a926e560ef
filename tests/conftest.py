"""Fixtures that more than one room uses."""

import functools
import importlib.util
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from airflow_ett.events import AttemptId, JobKey, LogWriter, RunDir, trainer_writer
from airflow_ett.trainer.caches.inductor import DIRECTORY

ROOT = Path(__file__).resolve().parents[1]
_LONGEST = "tests/system/test_durable.py"
_COMPILED_IN = os.environ.get(DIRECTORY)

# How long an example takes says more about the machine's other work than about ours.
hypothesis.settings.register_profile("here", deadline=None)
hypothesis.settings.load_profile("here")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Among several workers, keep together what shares a server or a module's fixtures.

    What a real Airflow is for goes to one worker: it takes longest, and mostly waits. Half of it,
    and trainings on Slurm, have an Airflow of their own, which another worker runs beside it. The
    tests of any other file stay together, and so do all files that use Postgres.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid.split("::")[0])

    return Groups(config, log)


@functools.cache
def _group(file: str) -> str:
    text = (ROOT / file).read_text()
    servers = [s for s in ("airflow", "postgres", "slurm") if f"pytest.mark.{s}" in text]
    if servers == ["airflow", "slurm"]:
        return " and ".join(servers)
    if servers and file != _LONGEST:
        return servers[0]
    return "postgres" if file.startswith("tests/store/") else file


@pytest.fixture(autouse=True)
def own_compile_cache() -> Iterator[None]:
    """Torch writes the folder that it compiles in into the environment: no later process has it.

    It does so at an import, too, as in a module's fixture, which is set up before this one.
    """
    yield
    if _COMPILED_IN is None:
        os.environ.pop(DIRECTORY, None)
    else:
        os.environ[DIRECTORY] = _COMPILED_IN


@pytest.fixture(scope="session")
def repo() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def airflow_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real Airflow with the DAGs of tests/system/dags and the users admin and viewer.

    One for the whole session: a test uses run ids of its own.
    """
    if importlib.util.find_spec("airflow") is None:
        pytest.skip("apache-airflow is not installed: pip install 'airflow-ett[airflow]'")
    from airflow_ett.demo.stack import AirflowStack

    stack = AirflowStack(
        tmp_path_factory.mktemp("airflow"),
        dags=ROOT / "tests" / "system" / "dags",
        users={"admin": "admin", "viewer": "viewer"},
        # A task whose process was killed is found after 20 s instead of 5 minutes.
        env={"AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20"},
    )
    stack.start()
    try:
        yield stack
    finally:
        stack.stop()


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[Any]:
    """A real Slurm of three nodes, with accounts."""
    yield from _slurm()


@pytest.fixture(scope="session")
def slurm_without_accounts() -> Iterator[Any]:
    """A real Slurm of one node, which forgets a job some seconds after its end."""
    yield from _slurm(nodes=1, accounting=False, min_job_age=2)


def _slurm(**options: Any) -> Iterator[Any]:
    from tests.slurm.cluster import Cluster, missing

    why_not = missing()
    if why_not:
        pytest.skip(f"no Slurm: {why_not}")
    cluster = Cluster(**options)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def slurm(slurm_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The real Slurm, as what Slurm's commands reach; its jobs end with the test."""
    monkeypatch.setenv("SLURM_CONF", slurm_cluster.conf)
    yield slurm_cluster
    slurm_cluster.clear()


@pytest.fixture(scope="session")
def login_node(slurm_cluster: Any) -> Iterator[Any]:
    """The sshd of a machine on which Slurm's commands reach the cluster."""
    from tests.slurm.sshd import Sshd, missing

    why_not = missing()
    if why_not:
        pytest.skip(f"no sshd: {why_not}")
    sshd = Sshd({"SLURM_CONF": slurm_cluster.conf})
    sshd.start()
    try:
        yield sshd
    finally:
        sshd.stop()


@pytest.fixture
def slurm_by_ssh(
    slurm: Any, login_node: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """The real Slurm as Airflow's SSH connection ``cluster`` alone reaches it."""
    pytest.importorskip("airflow.providers.ssh", reason="pip install 'airflow-ett[ssh]'")
    monkeypatch.delenv("SLURM_CONF")
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", login_node.uri())
    return slurm


SECOND = 1_000_000_000


@pytest.fixture(scope="session")
def write_job() -> Callable[..., RunDir]:
    """A writer of job logs below a run root: ``write_job(root, dag_id=..., ended=True)``."""
    return _write_job


def _write_job(
    root: Path,
    *,
    begin_ns: int = 1_790_000_000 * SECOND,
    ended: bool = True,
    accelerators: int = 2,
    **key: Any,
) -> RunDir:
    """Write the log of a training of 100 s and return its run directory.

    It fails at cursor 1000, resumes from a checkpoint at 600 and, if ``ended``, succeeds at 2000.
    """
    names = {"deployment": "default", "dag_id": "ranker", "run_id": "run-1", "task_id": "train"}
    job = JobKey(**{**names, **key})
    run = RunDir(root / job.path)

    def at(seconds: int) -> int:
        return begin_ns + seconds * SECOND

    launcher = LogWriter(run.launcher / "claim-1.jsonl", job=job.id, writer="launcher-1")
    opening = {"key": asdict(job), "scheduler": "local_detached", "accelerators": accelerators}
    launcher.append("job_opened", opening, time_ns=at(0))
    _launch(launcher, AttemptId(1), "first", at(0))
    _train(run, job.id, AttemptId(1), (0, 1000), (at(10), at(30)), at(8))
    failed = {"cause": "application", "evidence": {"text": "it raised", "exit_code": 1}}
    launcher.append("attempt_ended", failed, time_ns=at(32), attempt=AttemptId(1))
    _launch(launcher, AttemptId(2), "airflow", at(40))
    _train(run, job.id, AttemptId(2), (600, 2000), (at(50), at(90)), at(48))
    if ended:
        launcher.append("attempt_ended", {"cause": None}, time_ns=at(100), attempt=AttemptId(2))
        launcher.append("job_ended", {"state": "succeeded", "cause": None}, time_ns=at(100))
    launcher.close()
    return run


def _launch(launcher: LogWriter, attempt: AttemptId, layer: str, time_ns: int) -> None:
    number = attempt.submission
    data = {"submission": number, "app": f"app-{number}", "handle": f"local_detached://x/{number}"}
    data |= {"layer": layer, "try": number, "resume_cursor": 0}
    launcher.append("submitted", data, time_ns=time_ns, attempt=attempt)


def _train(
    run: RunDir,
    job: str,
    attempt: AttemptId,
    cursors: tuple[int, int],
    times: tuple[int, int],
    started_ns: int,
) -> None:
    writer = trainer_writer(attempt, 0, 100 + attempt.submission)
    log = LogWriter(run.nodes / f"{writer}.jsonl", job=job, writer=writer, attempt=attempt, rank=0)
    process = {"role": "trainer", "pid": 100, "host": "node-a", "node": 0, "world_size": 1}
    log.append("process_started", process, time_ns=started_ns)
    log.append("session_started", {"cursor_hwm": cursors[0]}, time_ns=started_ns)
    if cursors[0]:
        resumed = {"checkpoint": "file:///c/600", "cursor": cursors[0], "hwm": 1000}
        log.append("resumed", resumed, time_ns=started_ns)
    middle = (times[0] + times[1]) // 2
    half = 600 if not cursors[0] else 1000
    steps = [(times[0], middle, cursors[0], half), (middle, times[1], half, cursors[1])]
    for begin, end, cursor_from, cursor_to in steps:
        interval = {"from": begin, "to": end, "cursor_from": cursor_from, "cursor_to": cursor_to}
        interval |= {"steps": 10, "step_ns": end - begin, "wait_ns": 0, "other_ns": 0}
        log.append("interval", interval, time_ns=end)
    saved = {"checkpoint": f"file:///c/{half}", "cursor": half}
    log.append("checkpoint_saved", {**saved, "blocking_ns": SECOND}, time_ns=middle)
    committed = {**saved, "bytes": 10, "upload_ns": SECOND, "anchor": False}
    log.append("checkpoint_committed", committed, time_ns=middle + SECOND)
    log.close()
