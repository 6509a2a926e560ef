"""The scheduler on commands that say what a test wants: what it asks Slurm, and when."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from torchx.specs import AppDef, Resource, Role

from airflow_ett.errors import ConfigurationError, LaunchError
from airflow_ett.launch.gateway import Gateway
from airflow_ett.launch.schedulers.slurm import Slurm
from airflow_ett.launch.schedulers.slurm.transport import Local, Result


class Cluster(Local):
    """Slurm's commands, with jobs by number: name and state."""

    def __init__(self) -> None:
        self.jobs: dict[int, tuple[str, str]] = {}
        self.accounts: dict[int, tuple[str, str]] = {}
        self.calls: list[tuple[str, ...]] = []
        self.scripts: list[str] = []
        self.answers: dict[str, Result | Exception] = {}

    def run(self, argv: Sequence[str], input: str | None = None) -> Result:
        self.calls.append(tuple(argv))
        if argv[0] == "sbatch" and not isinstance(self.answers.get("sbatch"), Result):
            name = next(a.partition("=")[2] for a in argv if a.startswith("--job-name="))
            self.jobs[40 + len(self.jobs)] = (name, "RUNNING")
            self.scripts.append(str(input))
        answer = self.answers.get(argv[0])
        if isinstance(answer, Exception):
            raise answer
        return answer or Result(0, self._says(argv), "")

    def _says(self, argv: Sequence[str]) -> str:
        if argv[0] == "sbatch":
            return f"{max(self.jobs)};cluster\n"
        if argv[0] == "squeue":
            jobs = self.jobs.items()
            return "".join(f"{n}|{name}|{s}|None|n1|0|5|6|0|1|\n" for n, (name, s) in jobs)
        named = [a.partition("=")[2] for a in argv if a.startswith("--name=")]
        found = {n: j for n, j in self.accounts.items() if not named or j[0] in named}
        return "".join(f"{n}|{name}|{s}|None|n1|5|6|0:0\n" for n, (name, s) in found.items())

    def asked(self, command: str) -> list[tuple[str, ...]]:
        return [argv[1:] for argv in self.calls if argv[0] == command]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def slurm(cluster: Cluster, tmp_path: Path) -> Slurm:
    return Slurm("test", tmp_path / "apps", cluster)


def another(slurm: Slurm, cluster: Cluster) -> Slurm:
    """The same as another process has it."""
    return Slurm("other", Path(str(slurm.output("x", "r", 0))).parents[2], cluster)


def app(name: str = "app-1", **role: Any) -> AppDef:
    made = Role("r", "", entrypoint="/bin/true", env={"TOKEN": "s3cret"}, **role)
    return AppDef(name=name, roles=[made])


def submit(slurm: Slurm, cfg: dict[str, Any] | None = None, **what: Any) -> str:
    return slurm.schedule(slurm.submit_dryrun(app(**what), cfg or {}))


def test_what_is_asked_for_reaches_sbatch_and_secrets_do_not(
    slurm: Slurm, cluster: Cluster
) -> None:
    cfg = {
        "partition": "gpu",
        "account": "ml",
        "qos": "high",
        "time": "7-00:00:00",
        "constraint": "a100|h100",
        "nodelist": "n[1-2]",
        "exclude": "n3",
        "comment": "it's, mine",
        "mail_type": "END,FAIL",
        "mail_user": "me@x.org",
        "requeue": False,
        "reservation": "conference",
        "exclusive": True,
    }
    submit(slurm, cfg, num_replicas=2, resource=Resource(cpu=8, gpu=4, memMB=512))
    (argv,) = cluster.asked("sbatch")
    assert {
        *("--parsable", "--export=NONE", "--job-name=app-1", "--nodes=2", "--ntasks-per-node=1"),
        *("--cpus-per-task=8", "--mem=512M", "--gres=gpu:4", "--partition=gpu", "--account=ml"),
        *("--qos=high", "--time=7-00:00:00", "--constraint=a100|h100", "--nodelist=n[1-2]"),
        *("--exclude=n3", "--comment=it's, mine", "--mail-type=END,FAIL", "--mail-user=me@x.org"),
        *("--no-requeue", "--reservation=conference", "--exclusive", "--signal=B:HUP@30"),
    } <= set(argv)
    assert not any("s3cret" in text for text in (*argv, *cluster.scripts))
    task = Path(str(slurm.output("app-1", "r", 0))).parents[1] / "task"
    assert "s3cret" in task.read_text()
    assert task.stat().st_mode & 0o077 == 0


def test_what_is_not_asked_for_is_left_to_the_cluster(slurm: Slurm, cluster: Cluster) -> None:
    submit(slurm, {"mem": "0", "gres": "gpu:a100:8"}, resource=Resource(cpu=-1, gpu=4, memMB=-1))
    (argv,) = cluster.asked("sbatch")
    assert {"--mem=0", "--gres=gpu:a100:8"} <= set(argv)
    assert not [a for a in argv if a.startswith(("--partition", "--cpus", "--time", "--requeue"))]


def test_a_name_is_submitted_once_whoever_died_in_between(slurm: Slurm, cluster: Cluster) -> None:
    cluster.answers["sbatch"] = LaunchError("no answer")
    with pytest.raises(LaunchError, match="no answer"):
        submit(slurm)
    del cluster.answers["sbatch"]
    other = another(slurm, cluster)
    with pytest.raises(LaunchError, match="app-1 exists already"):
        submit(other)
    detail = other.detail("app-1")
    assert detail is not None
    assert detail.state == "RUNNING"
    assert len(cluster.asked("sbatch")) == 1


def test_who_looks_for_an_app_waits_for_an_sbatch_that_nobody_heard_the_end_of(
    tmp_path: Path,
) -> None:
    """By ssh a session may break, or a minute pass, and sbatch goes on on the login node."""

    class Slow(Cluster):
        @contextlib.contextmanager
        def locked(self, path: Path) -> Iterator[None]:
            with super().locked(path):
                if self.asked("sbatch"):
                    self.jobs[40] = ("app-1", "RUNNING")
                yield

        def run(self, argv: Sequence[str], input: str | None = None) -> Result:
            result = super().run(argv, input)
            if argv[0] == "sbatch":
                self.jobs.clear()
                raise LaunchError("cut off")
            return result

    there = Slow()
    gateway = Gateway({"slurm": lambda session, **_: Slurm(session, tmp_path, there)})
    prepared = gateway.prepare("utils.echo", [], "slurm")
    assert gateway.submit(prepared, "app-1") == "slurm://ett/app-1"


def test_a_job_that_only_the_accounts_know_is_found_by_name(slurm: Slurm, cluster: Cluster) -> None:
    cluster.answers["sbatch"] = LaunchError("no answer")
    with pytest.raises(LaunchError):
        submit(slurm)
    cluster.accounts = {7: ("app-1", "FAILED"), 9: ("app-1", "COMPLETED")}
    cluster.jobs.clear()
    detail = slurm.detail("app-1")
    assert detail is not None
    assert detail.state == "SUCCEEDED"
    (which,) = cluster.asked("sacct")
    assert which[-2:] == ("--name=app-1", "--starttime=now-10minutes")


def test_a_number_that_came_again_is_another_job(slurm: Slurm, cluster: Cluster) -> None:
    submit(slurm)
    cluster.jobs[40] = ("somebody-elses", "RUNNING")
    assert another(slurm, cluster).detail("app-1") is None


def test_a_refusal_is_told_in_slurms_words(slurm: Slurm, cluster: Cluster) -> None:
    cluster.answers["sbatch"] = Result(1, "", "sbatch: error: invalid partition specified: nope\n")
    with pytest.raises(LaunchError, match=r"sbatch refused app app-1: .*partition specified: nope"):
        submit(slurm)
    assert slurm.detail("app-1") is None


def test_a_folder_that_cannot_be_written_names_the_option(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    slurm = Slurm("test", tmp_path / "file", cluster)
    with pytest.raises(LaunchError, match=r"app-1 cannot be written .*slurm_state_dir"):
        submit(slurm)
    assert not cluster.asked("sbatch")


@pytest.mark.parametrize(
    ("state", "how"),
    [
        ("RUNNING", ("--batch", "--signal=USR1", "40")),
        ("PENDING", ("40",)),
        ("CONFIGURING", ("40",)),
        ("COMPLETING", ("40",)),
    ],
)
def test_an_end_leaves_trainers_their_grace_where_there_are_any(
    slurm: Slurm, cluster: Cluster, state: str, how: tuple[str, ...]
) -> None:
    submit(slurm)
    cluster.jobs[40] = ("app-1", state)
    slurm.cancel("app-1")
    assert cluster.asked("scancel") == [how]
    assert (Path(str(slurm.output("app-1", "r", 0))).parents[1] / "cancel").exists()


def test_a_job_that_ended_meanwhile_needs_no_cancel(slurm: Slurm, cluster: Cluster) -> None:
    submit(slurm)
    text = "scancel: error: Kill job error on job id 40: Job/step already completing or completed\n"
    for told in Result(1, "", text), Result(229, "", ""):
        cluster.answers["scancel"] = told
        slurm.cancel("app-1")
    cluster.answers["scancel"] = Result(1, "", "scancel: error: Access/permission denied\n")
    with pytest.raises(LaunchError, match=r"scancel of job 40 \(app app-1\) failed: .*denied"):
        slurm.cancel("app-1")


def test_what_cannot_run_as_one_job_is_refused_before(cluster: Cluster, tmp_path: Path) -> None:
    component = tmp_path / "two.py"
    component.write_text(
        "from torchx.specs import AppDef, Role\n"
        "def two() -> AppDef:\n"
        '    return AppDef("x", roles=[Role("a", "", entrypoint="e"), Role("b", "")])\n'
    )
    gateway = Gateway({"slurm": lambda session, **_: Slurm(session, tmp_path, cluster)})
    with pytest.raises(ConfigurationError, match=r"component: .*one role here, not 2 \(a, b\)"):
        gateway.prepare(f"{component}:two", [], "slurm")
    with pytest.raises(ConfigurationError, match=r"cfg: .*queue"):
        gateway.check("slurm", {"queue": "x"})
    with pytest.raises(ConfigurationError, match="cfg: requeue: Slurm starts no job again"):
        gateway.prepare("train", ["-m", "x", "--max_retries", "1"], "slurm", {"requeue": False})
    with pytest.raises(ConfigurationError, match=r"cfg: cwd: 'here' is no absolute path"):
        gateway.prepare("utils.echo", [], "slurm", {"cwd": "here"})


def test_an_option_may_be_spelled_as_torchx_has_it_too(cluster: Cluster, tmp_path: Path) -> None:
    """An app that is looked for under another id than it has is submitted twice."""
    gateway = Gateway({"slurm": lambda session, **_: Slurm(session, tmp_path, cluster)})
    cfg = {"sshConnId": "hpc", "excludeFailedNodes": False}
    prepared = gateway.prepare("utils.echo", [], "slurm", cfg, avoid=["n1"])
    assert gateway.app_id(prepared, "app-1") == "hpc:app-1"
    assert prepared.cfg == {"ssh_conn_id": "hpc", "exclude_failed_nodes": False}


def test_torchx_sees_the_same(slurm: Slurm) -> None:
    submit(slurm, num_replicas=2)
    described = slurm.describe("app-1")
    assert described is not None
    assert [r.hostname for r in described.roles_statuses[0].replicas] == ["n1", ""]
    assert [(a.app_id, str(a.state)) for a in slurm.list()] == [("app-1", "RUNNING")]
    Path(str(slurm.output("app-1", "r", 1))).write_text("one\ntwo\n")
    assert list(slurm.log_iter("app-1", "r", 1, regex="tw")) == ["two\n"]
    assert slurm.describe("nothing") is None


TOO_FEW = (
    "sbatch: error: Batch job submission failed: Requested node configuration is not available"
)


def excluded(cluster: Cluster) -> list[str]:
    """Return what each sbatch was to exclude."""
    return [
        " ".join(arg.partition("=")[2] for arg in argv if arg.startswith("--exclude="))
        for argv in cluster.asked("sbatch")
    ]


def test_a_host_that_lost_the_app_is_excluded_with_the_users_own(
    slurm: Slurm, cluster: Cluster
) -> None:
    submit(slurm, dict(slurm.avoiding({"exclude": "n1"}, ["n3", "n2"])))
    assert excluded(cluster) == ["n1,n3,n2"]


def test_where_too_few_are_left_the_earliest_loss_is_forgiven(
    slurm: Slurm, cluster: Cluster
) -> None:
    class Small(Cluster):
        def run(self, argv: Sequence[str], input: str | None = None) -> Result:
            if argv[0] == "sbatch" and "n2" in argv[-1]:
                self.calls.append(tuple(argv))
                return Result(1, "", TOO_FEW)
            return super().run(argv, input)

    small = Small()
    submit(another(slurm, small), {"exclude": "n1", "failed_nodes": "n3,n2"})
    assert excluded(small) == ["n1,n3,n2", "n1,n3"]


def test_another_refusal_is_not_asked_again(slurm: Slurm, cluster: Cluster) -> None:
    """An answer that was lost may be one that the job was taken."""
    cluster.answers["sbatch"] = Result(1, "", "sbatch: error: Socket timed out on send/recv\n")
    with pytest.raises(LaunchError, match="Socket timed out"):
        submit(slurm, {"failed_nodes": "n3"})
    assert excluded(cluster) == ["n3"]


def test_what_is_left_of_a_refused_job_is_no_app(cluster: Cluster, tmp_path: Path) -> None:
    """Slurm keeps a refused job as FAILED, without nodes."""
    slurm = Slurm("test", tmp_path / "apps", cluster)
    cluster.answers["sbatch"] = Result(1, "", TOO_FEW)
    cluster.answers["squeue"] = Result(0, "7|app-1|FAILED|BadConstraints||0|5|5|1|1|\n", "")
    cluster.answers["sacct"] = Result(0, "7|app-1|FAILED|None|None assigned|5|5|1:0\n", "")
    for _ in range(2):
        with pytest.raises(LaunchError, match=r"sbatch refused app app-1: .*not available"):
            submit(slurm)
    assert slurm.detail("app-1") is None


@pytest.mark.parametrize(
    ("state", "over"),
    [("RUNNING", False), ("COMPLETED", True), ("FAILED", True), ("PREEMPTED", False)],
)
def test_an_end_that_was_told_is_noted_unless_slurm_may_requeue(
    slurm: Slurm, cluster: Cluster, state: str, over: bool
) -> None:
    app_id = submit(slurm)
    cluster.jobs[40] = ("app-1", state)
    cluster.calls.clear()
    assert slurm.detail(app_id) is not None
    assert Path(str(slurm.output(app_id, "r", 0))).parents[1].joinpath("over").exists() == over
