"""What to fix next: the best advice, as the Dag tab shows it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from airflow_ett.metric import Components
from airflow_ett.metric.plans.advice import SHOWN, Advised

_NUMBERS = {2: "both", 3: "all three"}


@dataclass(frozen=True, slots=True)
class Fix:
    """One thing to fix: ``points`` of ETT%, ``saved`` accelerator-nanoseconds or nanoseconds.

    ``guide`` is the address of its how-to, ``newest`` that of the newest of the ``runs`` that show
    it.
    """

    title: str
    points: float
    saved: int
    evidence: str
    owner: str
    guide: str
    runs: int
    newest: str | None


@dataclass(frozen=True, slots=True)
class Fixes:
    """The best ones; ``overlap`` says what they are worth together where that is less than the sum
    of each."""

    items: Sequence[Fix]
    overlap: tuple[str, float] | None


def fixes_of(
    advised: Advised, links: Mapping[str, str], components: Components, *, accelerated: bool
) -> Fixes:
    """Return the best of what is advised; ``links`` are the addresses of runs by their ids."""
    best = advised.items[:SHOWN]
    items = [
        Fix(
            title=one.title,
            points=one.points,
            saved=one.saved_accelerator_ns if accelerated else one.saved_ns,
            evidence=one.evidence,
            owner=components[one.component].owner,
            guide=f"../guide#{quote(one.key, safe='')}",
            runs=len(one.runs),
            newest=next((links[run] for run in one.runs if run in links), None),
        )
        for one in best
    ]
    together = advised.together_points
    total = sum(round(one.points, 1) for one in best)
    if together is None or len(best) not in _NUMBERS or round(together, 1) >= total:
        return Fixes(items, None)
    return Fixes(items, (_NUMBERS[len(best)], together))
