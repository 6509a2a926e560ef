"""From sums to what the API says of a period. Pure."""

from airflow_ett.api.models import ComponentShare, DagRank, Days, FleetDay, Summary
from airflow_ett.metric import Components
from airflow_ett.store.periods import Period
from airflow_ett.store.sums import SPENT, WEIGHTED, Sums


def days_of(period: Period) -> Days:
    """Return a period as the API tells it."""
    return Days(first=period.first, last=period.last, timezone=period.zone.key)


def summary_of(sums: Sums, running: int, period: Period, components: Components) -> Summary:
    """Return the summary of a period."""
    parts = spent(sums)
    whole = sum(parts.values())
    return Summary(
        period=days_of(period),
        jobs=sums["jobs"],
        measured=sums["measured"],
        running=running,
        attempts=sums["attempts"],
        wall_ns=sums["wall_ns"],
        held_ns=sums["held_ns"],
        effective_ns=sums["effective_ns"],
        ett_pct=ett_pct(sums),
        ett_pct_held=ett_pct_held(sums),
        ett_pct_per_job=ett_pct_per_job(sums),
        lost_accelerator_ms=_lost_ms(sums),
        released_accelerator_ms=sums["released_weighted_ms"],
        components=[
            ComponentShare(
                component=name,
                owner=part.owner,
                ns=sums[SPENT[name]],
                accelerator_ms=sums[WEIGHTED[name]],
                share_pct=percent(parts[name], whole),
            )
            for name, part in components.items()
        ],
        failures=sums.failures.total(),
        failures_by_cause=dict(sorted(sums.failures.items())),
        tts_mean_ns=mean(sums["tts_ns"], sums["measured"]),
        ttr_mean_ns=mean(sums["ttr_ns"], sums["recoveries"]),
        recoveries=sums["recoveries"],
    )


def rank_of(
    deployment: str, dag_id: str, sums: Sums, running: int, components: Components
) -> DagRank:
    """Return a DAG's row of the ranking."""
    worst = largest_loss(sums)
    return DagRank(
        deployment=deployment,
        dag_id=dag_id,
        jobs=sums["jobs"],
        measured=sums["measured"],
        running=running,
        ett_pct=ett_pct(sums),
        lost_accelerator_ms=_lost_ms(sums),
        lost_ns=sums["measured_held_ns"] - sums[SPENT["effective"]],
        failures=sums.failures.total(),
        largest_loss=worst,
        owner=components[worst].owner if worst else None,
    )


def day_of(day: str, sums: Sums) -> FleetDay:
    """Return what the jobs that ended on a day come to."""
    return FleetDay(
        day=day,
        jobs=sums["jobs"],
        measured=sums["measured"],
        attempts=sums["attempts"],
        failures=sums.failures.total(),
        ett_pct=ett_pct(sums),
        ett_pct_held=ett_pct_held(sums),
        ett_pct_per_job=ett_pct_per_job(sums),
        held_accelerator_ms=sums["held_weighted_ms"],
        lost_accelerator_ms=_lost_ms(sums),
        accelerator_ms={name: sums[measure] for name, measure in WEIGHTED.items()},
    )


def ett_pct(sums: Sums) -> float | None:
    """Return the weighted ETT%, None where no job has one."""
    parts = spent(sums)
    return percent(parts["effective"], sum(parts.values()))


def ett_pct_held(sums: Sums) -> float | None:
    """Return the weighted ETT% of the time held."""
    return percent(spent(sums)["effective"], _held(sums))


def ett_pct_per_job(sums: Sums) -> float | None:
    """Return the jobs' mean ETT%."""
    return sums["ett_ppm"] / 10_000 / sums["measured"] if sums["measured"] else None


def largest_loss(sums: Sums) -> str | None:
    """Return the component that took most of what was not effective, None where nothing was."""
    losses = {name: value for name, value in spent(sums).items() if name != "effective"}
    return max(losses, key=losses.__getitem__) if any(losses.values()) else None


def percent(part: int, whole: int) -> float | None:
    """Return a share, 0 to 100; None of nothing."""
    return 100 * part / whole if whole else None


def weighs(sums: Sums) -> bool:
    """Say whether any job with an ETT% held accelerators."""
    return any(sums[name] for name in WEIGHTED.values())


def spent(sums: Sums) -> dict[str, int]:
    """Return the time by component: accelerator-milliseconds, nanoseconds where no job held any."""
    measures = WEIGHTED if weighs(sums) else SPENT
    return {name: sums[measure] for name, measure in measures.items()}


def _held(sums: Sums) -> int:
    return sums["held_weighted_ms" if weighs(sums) else "measured_held_ns"]


def _lost_ms(sums: Sums) -> int:
    return sums["held_weighted_ms"] - sums[WEIGHTED["effective"]]


def mean(total: int, count: int) -> int | None:
    """Return a mean, rounded down; None of nothing."""
    return total // count if count else None
