"""Whole trainings on a real Slurm: who starts them again, and what is told of it."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from airflow_ett.events import Cause
from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.limits import Limits
from airflow_ett.launch.schedulers.slurm import Slurm
from airflow_ett.launch.schedulers.slurm.asking import Asking
from airflow_ett.launch.schedulers.slurm.states import status_of
from airflow_ett.launch.schedulers.slurm.transport import Local
from airflow_ett.launch.status import SchedulerStatus
from tests.slurm.cluster import Cluster, missing
from tests.slurm.conftest import Training

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(missing() is not None, reason=f"no Slurm: {missing()}"),
]

NASTY = {
    "COMMAS": "a,b=c,,d",
    "QUOTES": "\"double\" 'single' `back` \\ $$HOME !",
    "LINES": "\nfirst\n\tsecond\n\n",
    "EMPTY": "",
}

DUMP = "import json; Path(os.environ['DUMP']).write_text(json.dumps(dict(os.environ)))"


def test_two_nodes_train_to_the_end(training: Training) -> None:
    add = "one = torch.ones(1); dist.all_reduce(one); print('sum', one.item(), flush=True)"
    training.begin(add, "-j", "2x1", every=1000)
    outcome = training.ends()
    assert outcome.cause is None
    words = training.words()
    assert words[-1] == ("SUCCEEDED", "COMPLETED")
    assert ("RUNNING", "RUNNING") in words
    status = training.gateway.status(str(outcome.handle))
    assert [r.host for r in status.replicas] == ["n1", "n2"]
    for node in (0, 1):
        place = training.gateway.log_location(str(outcome.handle), node)
        assert place is not None
        path = Path(urlsplit(place).path)
        assert path.is_absolute()
        assert "sum 2.0" in path.read_text()
    metric = training.metric()
    (attempt,) = metric.attempts
    assert metric.nof == 0
    assert attempt.phases_ns["hardware_setup"] > 0
    assert attempt.cursor_to == 40


@pytest.mark.by_ssh
def test_a_users_environment_arrives_whole_and_the_workers_does_not(
    training: Training, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AIRFLOW__ETT__API_SECRET", "SLURM_JOB_ACCOUNT", "SBATCH_HOLD", "OF_THE_WORKER"):
        monkeypatch.setenv(name, "leaks")
    dump = tmp_path / "environment"
    training.begin(DUMP, steps=1, env={**NASTY, "DUMP": str(dump)})
    assert training.ends().cause is None
    environ = json.loads(dump.read_text())
    assert {n: environ[n] for n in NASTY} == NASTY
    assert "leaks" not in environ.values()


@pytest.mark.by_ssh
def test_a_killed_trainer_is_relaunched_by_us_alone(training: Training, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    die = f"if number == 10 and not Path({str(mark)!r}).exists(): "
    die += f"Path({str(mark)!r}).touch(); os.kill(os.getpid(), 9)"
    training.begin(die)
    assert training.ends().cause is None
    assert [e.data["cause"] for e in training.events("attempt_ended")] == ["infrastructure", None]
    assert [e.data["layer"] for e in training.events("submitted")] == ["first", "relaunch"]
    assert [attempt.id[:2] for attempt in training.metric().attempts] == [(1, 0), (2, 0)]
    names = {event.data["app"] for event in training.events("submitted")}
    assert places(training) == [["n1"], ["n2"]]
    assert training.cluster.run("squeue", "-h", f"-j{training.job_id()}", "-tall", "-o%x") == "n1"

    def runs() -> list[str]:
        lines = training.cluster.run("sacct", "-nXDP", "-S", "now-5minutes", "-o", "JobName,State")
        rows = [line.rsplit("|", 1) for line in lines.splitlines()]
        return sorted(state for name, state in rows if name in names)

    training.cluster.until(lambda: runs() == ["COMPLETED", "FAILED"])  # the accounts lag behind


def places(training: Training) -> list[list[str]]:
    """Return the nodes of each run in turn, as Slurm told of them; not those that it has lost."""
    told = [event.data.get("hosts") for event in training.events("scheduler_state")]
    return [hosts for hosts, _ in itertools.groupby(t for t in told if t and None not in t)]


SOON = "StartTime=now+2"
"""A slurmd refuses a run that begins in the second in which it was rid of the one before."""


def again_at_once(training: Training) -> None:
    """Wait until Slurm has requeued the job, and spare the two minutes before it starts again."""

    def requeued() -> bool:
        states = training.events("scheduler_state")
        return bool(states) and states[-1].data.get("reason") == "BeginTime"

    assert training.until(requeued) is None
    assert training.events("scheduler_state")[-1].data["restart"] == 1
    training.cluster.run("scontrol", "update", f"job={training.job_id()}", SOON)


def test_a_preempted_job_is_requeued_by_slurm_alone_and_resumes(training: Training) -> None:
    training.begin("print('step', number, flush=True)", steps=120, every=0.5)
    training.says("step 40")
    training.cluster.run(
        *("sbatch", "--partition=urgent", "--nodes=3", "--exclusive", "--output=none"),
        *("--wrap", "sleep 1"),
    )
    again_at_once(training)
    assert training.ends().cause is None
    assert len(training.events("submitted")) == 1
    first, second = training.metric().attempts
    assert (first.id[:2], second.id[:2]) == ((1, 0), (1, 1))
    assert (first.cause, second.layer) == ("preempted", "scheduler")
    assert second.cursor_from is not None
    assert second.cursor_from >= 40
    assert f"from {second.cursor_from}" in training.output()


def test_a_training_that_is_over_does_not_begin_again(training: Training) -> None:
    """A slurmctld that is killed may forget an end, and have the job run as if it never had."""
    training.begin(steps=5)
    assert training.ends().cause is None
    run, job = training.cluster.run, training.job_id()

    def shown() -> str:
        return str(run("squeue", "--me", "--noheader", "--states=all", "--format=%T %r %i"))

    training.cluster.until(lambda: f"COMPLETED None {job}" in shown())
    run("scontrol", "requeue", str(job))
    training.cluster.until(lambda: f"PENDING BeginTime {job}" in shown())
    run("scontrol", "update", f"job={job}", SOON)
    training.cluster.until(lambda: f"CANCELLED None {job}" in shown())
    assert training.output().count("from 0") == 1


def test_what_a_component_lets_slurm_retry_is_not_relaunched_by_us(
    training: Training, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    fail = f"if not Path({str(mark)!r}).exists(): Path({str(mark)!r}).touch(); os._exit(3)"
    training.begin(fail, "--max_retries", "1")
    again_at_once(training)
    assert training.ends().cause is None
    assert len(training.events("submitted")) == 1
    assert [attempt.id[:2] for attempt in training.metric().attempts] == [(1, 0), (1, 1)]


SEVERAL = """
from torchx.specs import AppDef, Role, macros
def several() -> AppDef:
    script = {script!r}.replace("NODE", macros.replica_id)
    more = dict(num_replicas=2, max_retries={retries})
    return AppDef("x", roles=[Role("r", "", entrypoint="bash", args=["-c", script], **more)])
"""


def several(slurm: Any, folder: Path, script: str, *, retries: int = 0) -> tuple[Gateway, str]:
    """Submit an app of two nodes, each of which runs ``script``."""
    component = folder / "several.py"
    component.write_text(SEVERAL.format(script=script, retries=retries))
    scheduler = Slurm("test", folder / "apps", Local())
    gateway = Gateway({"slurm": lambda session, **_: scheduler})
    prepared = gateway.prepare(f"{component}:several", [], "slurm", {"grace_s": 3})
    return gateway, gateway.submit(prepared, "several")


def test_a_node_that_fails_takes_the_others_along_after_their_grace(
    slurm: Any, tmp_path: Path
) -> None:
    script = "trap 'sleep 2; echo saved; exit 0' TERM; [ NODE = 1 ] && exit 7; "
    script += "while :; do sleep 0.1; done"
    gateway, handle = several(slurm, tmp_path, script)
    slurm.until(lambda: gateway.status(handle).terminal)
    status = gateway.status(handle)
    assert (status.state, status.raw) == ("FAILED", "FAILED")
    assert gateway.last_lines(handle, 0)[-1] == "saved"


def test_one_that_does_not_heed_it_is_killed_in_each_run(slurm: Any, tmp_path: Path) -> None:
    script = "trap '' TERM; [ NODE = 1 ] && exit 7; while :; do sleep 0.1; done"
    gateway, handle = several(slurm, tmp_path, script, retries=1)
    slurm.until(lambda: gateway.status(handle).reason == "BeginTime")
    number = (tmp_path / "apps" / "several" / "job").read_text().strip()
    slurm.run("scontrol", "update", f"job={number}", SOON)
    slurm.until(lambda: gateway.status(handle).terminal)
    assert (gateway.status(handle).state, gateway.status(handle).restart) == ("FAILED", 1)


def test_scancel_from_elsewhere_is_a_users_cancel(training: Training) -> None:
    training.begin(steps=10_000)
    training.says("from 0")
    training.cluster.run("scancel", str(training.job_id()))
    assert training.ends().cause is Cause.USER_CANCELLED
    assert training.words()[-1] == ("CANCELLED", "CANCELLED")
    assert len(training.events("submitted")) == 1


def test_another_process_cancels_and_the_trainer_has_its_grace(training: Training) -> None:
    """The step takes longer than KillWait, which is 5 s here."""
    until = "while not Path('cancel').exists(): time.sleep(0.1)"
    long = f"if number == 5: print('long', flush=True); exec({until!r}); time.sleep(6)"
    training.begin(long, steps=10_000, every=1000)
    training.says("long")
    code = (
        "import sys\n"
        "from airflow_ett.launch.gateway import Gateway\n"
        "from airflow_ett.launch.schedulers.slurm import create_scheduler\n"
        "make = lambda s, **_: create_scheduler(s, state_dir=sys.argv[1])\n"
        "Gateway({'slurm': make}).cancel(sys.argv[2])\n"
    )
    argv = (
        sys.executable,
        "-c",
        code,
        str(training.folder / "apps"),
        f"slurm://ett/{training.app_id}",
    )
    subprocess.run(argv, check=True, timeout=60)
    outcome = training.ends()
    assert outcome.cause is Cause.USER_CANCELLED
    assert outcome.cursor == 5
    assert outcome.checkpoint is not None


def test_an_app_that_heeds_no_signal_ends_after_its_grace(slurm: Any, tmp_path: Path) -> None:
    component = tmp_path / "deaf.py"
    component.write_text(
        "from torchx.specs import AppDef, Role\n"
        "def deaf() -> AppDef:\n"
        "    script = \"trap '' TERM; echo up; while :; do sleep 1; done\"\n"
        "    role = Role('r', '', entrypoint='sh', args=['-c', script])\n"
        "    return AppDef('x', roles=[role])\n"
    )
    scheduler = Slurm("test", tmp_path / "apps", Local())
    gateway = Gateway({"slurm": lambda session, **_: scheduler})
    prepared = gateway.prepare(f"{component}:deaf", [], "slurm", {"grace_s": 2})
    handle = gateway.submit(prepared, "deaf")
    slurm.until(lambda: gateway.read_log(handle)[0] == "up\n")
    began = time.monotonic()
    gateway.cancel(handle)
    slurm.until(lambda: gateway.status(handle).terminal)
    assert gateway.status(handle).state == "CANCELLED"
    assert 2 <= time.monotonic() - began < 20


def test_a_held_job_waits_and_tells_why(training: Training) -> None:
    training.begin(cfg={"partition": "closed"}, limits=Limits(start_timeout_s=6))
    reasons = lambda: [e.data.get("reason") for e in training.events("scheduler_state")]  # noqa: E731
    assert training.until(lambda: "PartitionDown" in reasons()) is None
    training.cluster.run("scontrol", "hold", str(training.job_id()))
    outcome = training.ends()
    assert outcome.cause is Cause.TIMEOUT
    assert "JobHeldAdmin" in reasons()
    assert f"Slurm job {training.job_id()}: JobHeldAdmin" in outcome.message
    assert training.words()[-1] == ("CANCELLED", "CANCELLED")


def test_the_accounts_tell_what_the_queue_told(training: Training) -> None:
    training.begin(steps=1)
    outcome = training.ends()
    status = training.gateway.status(str(outcome.handle))
    number = training.job_id()

    def kept() -> SchedulerStatus:
        (job,) = Asking(training.transport).accounted(f"--jobs={number}")
        return status_of(job, "trainer", 1)

    training.cluster.until(lambda: kept() == status)


def test_a_job_near_its_time_limit_saves_and_is_a_timeout(training: Training) -> None:
    """A minute is the shortest limit, and Slurm looks every half minute.

    Each step takes longer than KillWait, which is 5 s here.
    """
    training.begin("time.sleep(6)", "--grace_s", "10", every=1000, cfg={"time": "1"})
    outcome = training.ends(timeout_s=200)
    assert outcome.cause is Cause.TIMEOUT
    assert training.words()[-1] == ("FAILED", "TIMEOUT")
    assert outcome.checkpoint is not None
    assert f"c{outcome.cursor:015d}" in outcome.checkpoint
    (stopped,) = [e for e in training.log.submission_events(1) if e.kind == "signal"]
    ended_ns = training.gateway.status(str(outcome.handle)).ended_ns or 0
    assert ended_ns - stopped.time_ns > 10e9


@pytest.mark.parametrize("requeue", [False, True])
def test_a_lost_node_is_left_behind_by_exactly_one_layer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, requeue: bool
) -> None:
    """Two nodes of three train; the one without the batch script is lost.

    Slurm takes it for DOWN, so that a requeued job does not come to it; once it is up, we do.
    """
    cluster = Cluster(3, accounting=False)
    cluster.start()
    monkeypatch.setenv("SLURM_CONF", cluster.conf)
    try:
        training = Training(cluster, tmp_path)
        slow = "time.sleep(0 if os.environ['SLURM_JOB_NODELIST'] == 'n[1,3]' else 1)"
        training.begin(slow, "-j", "2x1", steps=60, cfg={"requeue": requeue})
        training.says("from 0")
        cluster.lose("n2")
        if requeue:
            again_at_once(training)
        assert training.ends().cause is None
        metric = training.metric()
        excluded = cluster.run("squeue", "-h", f"-j{training.job_id()}", "-tall", "-o%x")
    finally:
        cluster.stop()
    layer = "scheduler" if requeue else "relaunch"
    assert [attempt.id[:2] for attempt in metric.attempts] == [
        (1, 0),
        (1, 1) if requeue else (2, 0),
    ]
    assert metric.attempts[1].layer == layer
    assert metric.nof_by_layer == {layer: 1}
    assert places(training) == [["n1", "n2"], ["n1", "n3"]]
    if not requeue:
        (lost, _) = training.events("attempt_ended")
        assert lost.data["cause"] == "infrastructure"
        assert lost.data["evidence"]["host"] == "n2"
        assert excluded == "n2"


def test_a_cluster_of_one_node_is_not_shut_out(
    slurm_without_accounts: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLURM_CONF", slurm_without_accounts.conf)
    training = Training(slurm_without_accounts, tmp_path)
    mark = tmp_path / "mark"
    die = (
        f"if not Path({str(mark)!r}).exists(): Path({str(mark)!r}).touch(); os.kill(os.getpid(), 9)"
    )
    training.begin(die, steps=5)
    assert training.ends().cause is None
    assert training.events("attempt_ended")[0].data["evidence"]["host"] == "n1"
    assert places(training) == [["n1"]]
    assert len(training.events("submitted")) == 2


def test_without_accounts_the_trainers_own_end_decides(
    slurm_without_accounts: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLURM_CONF", slurm_without_accounts.conf)
    training = Training(slurm_without_accounts, tmp_path)
    training.begin(steps=5)
    training.says("from 0")
    slurm_without_accounts.until(
        lambda: not slurm_without_accounts.run("squeue", "-h", "--states=all")
    )
    training.watch(mode="trigger", limits=Limits(unknown_grace_s=3))
    outcome = training.ends()
    assert outcome.cause is None
    assert "The scheduler has forgotten the app" in outcome.message
