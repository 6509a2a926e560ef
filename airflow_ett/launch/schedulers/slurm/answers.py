"""What ``squeue`` and ``sacct`` say of jobs, as :class:`Job`. Pure.

Both are asked for named fields between bars. That form is the same from Slurm 22.05 on, while their
JSON changes with every release; what a release writes differently is taken either way:

==============  ==========================================  =====================================
field           22.05                                       read, too, should a release write it
==============  ==========================================  =====================================
exit code       wait status ``1280`` (squeue), ``5:0``      ``5:0`` in the queue
                (sacct, which makes 9 of 137)
no time         ``N/A``, ``NONE``, ``None``, ``Unknown``
no nodes        nothing, ``None assigned``                  ``(null)``, ``N/A``
state           ``CANCELLED by 1000``                       ``CANCELLED+`` where it is cut short
==============  ==========================================  =====================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

SQUEUE = ("JobID", "Name", "State", "Reason", "NodeList", "RestartCnt", "StartTime", "EndTime",
          "exit_code", "Requeue")  # fmt: skip
SACCT = ("JobIDRaw", "JobName", "State", "Reason", "NodeList", "Start", "End", "ExitCode")

_NOTHING = frozenset({"", "n/a", "none", "unknown", "(null)", "none assigned"})


@dataclass(frozen=True, slots=True)
class Job:
    """One job: what is not known is empty, or None.

    ``reason`` is why it waits, or why it ended; ``restart`` how often Slurm has started it again.
    Times are in seconds since 1970. ``requeue``: Slurm may queue it again by itself. ``queued`` is
    False where only the accounts know it. ``former`` is the state in which the run before ended.
    """

    id: int
    name: str
    state: str
    reason: str = ""
    nodes: str = ""
    restart: int = 0
    begin_s: int | None = None
    end_s: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    requeue: bool = False
    queued: bool = True
    former: str = ""

    @property
    def refused(self) -> bool:
        """Whether it is what ``sbatch`` leaves of a job that no nodes of the cluster suit."""
        return self.state == "FAILED" and not self.nodes


def squeue_argv() -> list[str]:
    """Return the command that tells of all of this user's jobs that slurmctld still has."""
    fields = ",".join(f"{name}:|" for name in SQUEUE)
    return ["squeue", "--me", "--noheader", "--states=all", f"--Format={fields}"]


def sacct_argv(*which: str) -> list[str]:
    """Return the command that tells of jobs, each of their runs in a line of its own."""
    form = ("--noheader", "--parsable2", "--allocations", "--duplicates")
    return ["sacct", *form, f"--format={','.join(SACCT)}", *which]


def read_squeue(text: str) -> list[Job]:
    """Return the jobs of ``squeue``'s answer.

    The parts of arrays and of het jobs, which are not ours, have numbers of their own (22.05) or
    are passed over.
    """
    jobs = []
    for row in _rows(text, SQUEUE):
        if row["JobID"].isdigit():
            code, number = _exit(row["exit_code"])
            jobs.append(
                Job(
                    id=int(row["JobID"]),
                    name=row["Name"],
                    state=_state(row["State"]),
                    reason=_text(row["Reason"]),
                    nodes=_text(row["NodeList"]),
                    restart=int(row["RestartCnt"]) if row["RestartCnt"].isdigit() else 0,
                    begin_s=_time(row["StartTime"]),
                    end_s=_time(row["EndTime"]),
                    exit_code=code,
                    signal=number,
                    requeue=row["Requeue"] not in ("0", "no"),
                )
            )
    return jobs


def read_sacct(text: str) -> list[Job]:
    """Return the jobs of ``sacct``'s answer, each as its newest run left it.

    A slurmctld that was killed may give a number to another job, too: the newest one counts.
    """
    jobs: dict[int, Job] = {}
    for row in _rows(text, SACCT):
        if row["JobIDRaw"].isdigit():
            code, number = _exit(row["ExitCode"])
            job = Job(
                id=int(row["JobIDRaw"]),
                name=row["JobName"],
                state=_state(row["State"]),
                reason=_text(row["Reason"]),
                nodes=_text(row["NodeList"]),
                begin_s=_time(row["Start"]),
                end_s=_time(row["End"]),
                exit_code=code,
                signal=number,
                queued=False,
            )
            before = jobs.get(job.id)
            if before is not None and before.name == job.name:
                former = before.state if before.end_s is not None else ""
                job = replace(job, restart=before.restart + 1, former=former)
            jobs[job.id] = job
    return list(jobs.values())


def _rows(text: str, fields: Sequence[str]) -> Iterable[dict[str, str]]:
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) >= len(fields):
            yield dict(zip(fields, cells, strict=False))


def _state(text: str) -> str:
    """Return the bare word: ``CANCELLED by 1000`` and ``CANCELLED+`` are CANCELLED."""
    return text.split()[0].rstrip("+").upper() if text.strip() else ""


def _text(text: str) -> str:
    return "" if text.lower() in _NOTHING else text


def _time(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _exit(text: str) -> tuple[int | None, int | None]:
    """Return exit code and signal of ``code:signal`` or of a wait status."""
    code, colon, number = text.partition(":")
    if not code.isdigit():
        return None, None
    if colon:
        return int(code), (int(number) or None) if number.isdigit() else None
    status = int(code)
    return status >> 8, (status & 0x7F) or None
