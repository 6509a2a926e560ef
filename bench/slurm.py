"""What watching costs a real Slurm, and how fast a training goes on there.

Slurm runs on this machine (``tests/slurm/cluster.py``), three nodes on paper, so its answers are
as fast as they get; a site's slurmctld is slower and has others to serve. ``theirs`` is one
``squeue`` per job and look, and Slurm's own requeue. Takes about six minutes.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from deaths import Deaths, deaths
from report import Target, publish_table
from watched import JOBS, POLL_S, watched

sys.path.append(str(Path(__file__).resolve().parents[1]))
from tests.slurm import cluster as clusters
from tests.slurm import sshd as sshds
from tests.slurm.cluster import Cluster

COLUMNS = ("ours", "theirs", "ratio")
LEAST_S = 5
"""Slurm allows no shorter life of credentials, which a requeue waits for."""

Row = tuple[float | None, float | None, float | None]


def _squeues(seen: dict[str, Any]) -> float:
    return float(seen["commands"]["squeue"] * POLL_S / seen["seconds"])


def _every_s(seen: dict[str, Any]) -> float:
    return float(seen["seconds"] * JOBS / len(seen["looks"]))


def _each(seen: dict[str, Any], part: str) -> float:
    return float(seen[part] * JOBS / len(seen["looks"]))


def _asking(seen: dict[str, Any]) -> float:
    return _each(seen, "in_commands") + _each(seen, "in_slurmctld")


SQUEUE_TIME = f"processor time of squeue, s per {JOBS} looks"
FIGURES: Mapping[str, Callable[[dict[str, Any]], float]] = {
    "squeue per poll interval": _squeues,
    "  looks that one squeue serves": lambda seen: len(seen["looks"]) / seen["commands"]["squeue"],
    "  each job is looked at every, s": _every_s,
    "a look, median, ms": lambda seen: statistics.median(seen["looks"]) * 1000,
    "  p95, ms": lambda seen: statistics.quantiles(seen["looks"], n=20)[-1] * 1000,
    SQUEUE_TIME: lambda seen: _each(seen, "in_commands"),
    "  of slurmctld, s": lambda seen: _each(seen, "in_slurmctld"),
    "  of the triggerer, s": lambda seen: _each(seen, "in_triggerer"),
}


@contextlib.contextmanager
def running(**options: Any) -> Iterator[Cluster]:
    """A Slurm of three nodes."""
    cluster = Cluster(**options)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


def beside(ours: float, theirs: float) -> Row:
    return ours, theirs, ours / theirs


def standstill_rows(seen: Deaths) -> dict[str, Row]:
    """Whole standstills, Slurm's wait as short as a site can have it, and the parts of ours."""
    whole = [relaunch.whole for relaunch in seen.ours]
    middle = statistics.median(whole)
    rows: dict[str, Row] = {
        "trainer's death to the next one, median, s": beside(
            middle, statistics.median(seen.requeued)
        ),
        "  fastest, s": beside(min(whole), min(seen.requeued)),
        "  slowest, s": beside(max(whole), max(seen.requeued)),
        f"  beside a requeue with cred_expire={LEAST_S}, median, s": beside(
            middle, statistics.median(seen.hasty)
        ),
    }
    labels = {
        "decided": "    until the next submission is intended",
        "agent": "    until Slurm has it and its agent runs",
        "trainer": "    until its trainer runs",
    }
    for part, label in labels.items():
        seconds = statistics.median(getattr(relaunch, part) for relaunch in seen.ours)
        rows[label] = (seconds, None, None)
    return rows


def watching_rows(seen: dict[str, Any]) -> dict[str, Row]:
    """What the same triggers cost when they share a question, and when each asks its own."""
    shared, alone = seen["shared"], seen["one each"]
    return {label: beside(figure(shared), figure(alone)) for label, figure in FIGURES.items()}


def watched_by_ssh(cluster: Cluster, slurmctld: int) -> tuple[dict[str, Any], int]:
    """Measure through a login node; return also how often it was logged in to."""
    sshd = sshds.Sshd({"SLURM_CONF": cluster.conf})
    sshd.start()
    try:
        os.environ["AIRFLOW_CONN_LOGIN"] = sshd.uri()
        del os.environ["SLURM_CONF"]
        return watched(slurmctld, "login"), sshd.connections
    finally:
        sshd.stop()


def ssh_rows(seen: dict[str, Any], logins: int) -> dict[str, Row]:
    """The same through ssh, ours alone. What squeue takes there is not seen from here."""
    rows: dict[str, Row] = {"by ssh: logins of all": (logins, None, None)}
    for label, figure in FIGURES.items():
        if label != SQUEUE_TIME:
            rows[f"by ssh: {label.strip()}"] = (figure(seen["shared"]), None, None)
    return rows


def accounts_away(cluster: Cluster) -> str | None:
    """Return what sacct says where it does not answer."""
    try:
        cluster.run("sacct", "--noheader")
    except subprocess.CalledProcessError as error:
        return " ".join(str(error.stderr).split()) or f"sacct ended with {error.returncode}"
    return None


def main() -> None:
    """Measure one after the other, and publish."""
    if why_not := clusters.missing():
        sys.exit(f"no Slurm: {why_not}")
    if why_not := sshds.missing():
        sys.exit(f"no sshd: {why_not}")
    logging.disable(logging.CRITICAL)
    with contextlib.redirect_stdout(io.StringIO()), running() as cluster:
        os.environ["SLURM_CONF"] = cluster.conf
        away = accounts_away(cluster)
        with running(accounting=False, requeue_wait=LEAST_S) as hasty:
            died = deaths(cluster, hasty)
        cluster.clear()
        (slurmctld,) = (pid for pid, itself in cluster._of("slurmctld").items() if itself)
        seen = watched(slurmctld)
        cluster.clear()
        by_ssh, logins = watched_by_ssh(cluster, slurmctld)
    if away:
        print(f"slurmdbd is away, so nothing is said of accounts here: {away}")
    shared, alone = seen["shared"], seen["one each"]
    through = by_ssh["shared"]
    accounts = sum(
        part["commands"].get("sacct", 0) for part in (seen["submitting"], shared, through)
    )
    cost = _asking(shared) / _asking(alone)
    standstill = statistics.median(relaunch.whole for relaunch in died.ours)
    targets = [
        Target(f"squeue per poll interval with {JOBS} watched", _squeues(shared), "", 1),
        Target("each of them is looked at every", _every_s(shared), "s", 2),
        Target("squeue per poll interval by ssh", _squeues(through), "", 1),
        Target("logins for that", logins, "", 1),
        Target("sacct while slurmctld has the jobs", accounts, "", 0),
        Target("processor time of squeue and slurmctld over theirs", cost, "times", 0.05),
        Target(
            "trainer's death to the next one over Slurm's requeue",
            standstill / statistics.median(died.requeued),
            "times",
            0.1,
        ),
    ]
    rows = standstill_rows(died) | watching_rows(seen) | ssh_rows(by_ssh, logins)
    publish_table("slurm", COLUMNS, rows, targets)


if __name__ == "__main__":
    main()
