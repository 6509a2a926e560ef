"""The run's tab, from what the store holds to what the templates show. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_ett.api.places import SafePlace, without_secrets
from airflow_ett.metric import COMPONENTS, Components
from airflow_ett.store.queries import PhaseRow
from airflow_ett.ui.clock import Clock
from airflow_ett.ui.data import COMPONENT_LABELS
from airflow_ett.ui.run import choice, progress, saves
from airflow_ett.ui.run.attempts import Attempts, attempts
from airflow_ett.ui.run.head import Head, head
from airflow_ett.ui.run.headline import Stat, Sum, headline, wall_clock
from airflow_ett.ui.run.levers import Lever, levers
from airflow_ett.ui.run.notices import Notice, notices
from airflow_ett.ui.run.phases import PhaseTable, phase_table

ATTEMPTS, CHECKPOINTS, COMPILES = "attempts", "checkpoints", "compiles"
LEVERS, VERSIONS, JOBS = "levers", "versions", "jobs"
"""What a page may be asked to show without leaving rows out."""
_ROWS = 14


@dataclass(frozen=True, slots=True)
class RunView:
    """One job. ``begin_ns`` is the day that times without a date lie on."""

    begin_ns: int
    head: Head
    notices: tuple[Notice, ...]
    stats: tuple[Stat, ...]
    sum: Sum | None
    attempts: Attempts
    phases: PhaseTable
    levers: saves.Listing[Lever]
    compiles: saves.Listing[saves.Compile]
    checkpoints: saves.Listing[saves.Checkpoint]
    accelerated: bool
    versions: saves.Listing[saves.Version]


@dataclass(frozen=True, slots=True)
class JobLine:
    """One job of several; ``lost`` are accelerator-nanoseconds, plain ones without accelerators.

    ``tts_ns``, ``recovery_ns`` and ``lost`` are None where nobody knows them.
    """

    label: str
    query: str
    state: str
    frozen: bool
    wall_ns: int
    ett_pct: float | None
    components_ns: Mapping[str, int]
    attempts: int
    tts_ns: int | None
    nof: int
    recovery_ns: int | None
    lost: int | None
    quality: str


@dataclass(frozen=True, slots=True)
class JobsView:
    """Several jobs of a run: ``shown`` of ``total``."""

    shown: tuple[JobLine, ...]
    total: int
    accelerated: bool


def run_view(
    result: Mapping[str, Any],
    rows: Sequence[PhaseRow],
    clock: Clock,
    *,
    now_ns: int,
    safe: SafePlace,
    others: Sequence[choice.Row] = (),
    pruned: bool = False,
    whole: Collection[str] = (),
    components: Components = COMPONENTS,
) -> RunView:
    """Return what the tab shows of a job, given as ``JobMetric.as_dict()``.

    ``rows`` are its phases in the store, ``others`` its task's other generations, ``safe`` takes
    secrets out of an address, ``whole`` names the tables that leave no row out.
    """
    result = without_secrets(result, safe)
    stands = progress.standstill(result, now_ns, components)
    silent_ns = progress.silence_ns(result, now_ns)
    return RunView(
        begin_ns=result["begin_ns"],
        head=head(result, clock, stands=stands, silent_ns=silent_ns, others=others),
        notices=notices(result, clock, stands=stands, silent_ns=silent_ns, pruned=pruned),
        stats=headline(result, clock),
        sum=None if result["ett_pct"] is None else wall_clock(result),
        attempts=attempts(result, show_all=ATTEMPTS in whole),
        phases=phase_table(result, rows, components),
        levers=levers(result, show_all=LEVERS in whole),
        compiles=saves.compiles(result, show_all=COMPILES in whole),
        checkpoints=saves.checkpoints(result, show_all=CHECKPOINTS in whole),
        accelerated=bool(result["accelerators"]),
        versions=saves.versions(result, show_all=VERSIONS in whole),
    )


def jobs_view(jobs: Sequence[choice.Row], run_id: str, *, show_all: bool) -> JobsView:
    """Return the table of a run's jobs."""
    accelerated = any(job["accelerators"] for job in jobs)
    shown = jobs if show_all else jobs[:_ROWS]
    lines = (_line(job, run_id, accelerated) for job in shown)
    return JobsView(tuple(lines), len(jobs), accelerated)


def _line(job: choice.Row, run_id: str, accelerated: bool) -> JobLine:
    measured = job["ett_pct"] is not None
    weight = job["accelerators"] if accelerated else 1
    return JobLine(
        label=choice.label(job),
        query=choice.address(run_id=run_id, job=job["job"]),
        state=job["state"],
        frozen=job["frozen"],
        wall_ns=job["wall_ns"],
        ett_pct=job["ett_pct"],
        components_ns={name: job["components_ns"].get(name, 0) for name in COMPONENT_LABELS},
        attempts=job["attempts"],
        tts_ns=job["tts_ns"] if measured else None,
        nof=job["nof"],
        recovery_ns=job["ttr_ns"] if job["recoveries"] else None,
        lost=(job["held_ns"] - job["effective_ns"]) * weight if measured else None,
        quality=job["quality"],
    )
