"""From sums to what the API says of a period. Pure."""

from airflow_ett.api.models import ComponentShare, DagRank, Days, Summary
from airflow_ett.metric import Components
from airflow_ett.store.periods import Period
from airflow_ett.store.sums import SPENT, WEIGHTED, Sums


def days_of(period: Period) -> Days:
    """Return a period as the API tells it."""
    return Days(first=period.first, last=period.last, timezone=period.zone.key)


def summary_of(sums: Sums, running: int, period: Period, components: Components) -> Summary:
    """Return the summary of a period."""
    spent = _spent(sums)
    whole = sum(spent.values())
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
        ett_pct_held=percent(spent["effective"], _held(sums)),
        ett_pct_per_job=_mean_pct(sums),
        lost_accelerator_ms=_lost_ms(sums),
        components=[
            ComponentShare(
                component=name,
                owner=part.owner,
                ns=sums[SPENT[name]],
                accelerator_ms=sums[WEIGHTED[name]],
                share_pct=percent(spent[name], whole),
            )
            for name, part in components.items()
        ],
        failures=sums.failures.total(),
        failures_by_cause=dict(sorted(sums.failures.items())),
        tts_mean_ns=_mean(sums["tts_ns"], sums["measured"]),
        ttr_mean_ns=_mean(sums["ttr_ns"], sums["recoveries"]),
        recoveries=sums["recoveries"],
    )


def rank_of(
    deployment: str, dag_id: str, sums: Sums, running: int, components: Components
) -> DagRank:
    """Return a DAG's row of the ranking."""
    spent = {name: value for name, value in _spent(sums).items() if name != "effective"}
    worst = max(spent, key=spent.__getitem__) if any(spent.values()) else None
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


def ett_pct(sums: Sums) -> float | None:
    """Return the weighted ETT%, None where no job has one."""
    spent = _spent(sums)
    return percent(spent["effective"], sum(spent.values()))


def percent(part: int, whole: int) -> float | None:
    """Return a share, 0 to 100; None of nothing."""
    return 100 * part / whole if whole else None


def _weighs(sums: Sums) -> bool:
    """Say whether any job held accelerators."""
    return any(sums[name] for name in WEIGHTED.values())


def _spent(sums: Sums) -> dict[str, int]:
    measures = WEIGHTED if _weighs(sums) else SPENT
    return {name: sums[measure] for name, measure in measures.items()}


def _held(sums: Sums) -> int:
    return sums["held_weighted_ms" if _weighs(sums) else "measured_held_ns"]


def _lost_ms(sums: Sums) -> int:
    return sums["held_weighted_ms"] - sums[WEIGHTED["effective"]]


def _mean(total: int, count: int) -> int | None:
    return total // count if count else None


def _mean_pct(sums: Sums) -> float | None:
    return sums["ett_ppm"] / 10_000 / sums["measured"] if sums["measured"] else None
