"""What is printed of an ablation, and what of it goes into the JSON and the targets."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from report import Target, show

from ablation.campaign import Campaign
from ablation.equal import checks
from ablation.figures import COLUMNS, Figures, Spread, spreads
from ablation.kept import Run
from ablation.pace import at_pace, trained_ns
from ablation.predict import Prediction, predict
from ablation.rows import ALL, Row
from ablation.split import PAPER, saved, split, why

GAIN_POINTS, AT_LEAST_PCT, AT_MOST_PCT = 15.5, 59.0, 85.0
SHORTER, FALLS, OFF_POINTS = 8.0, 1.8, 3.0
THEIRS = "ETT% of the baseline, as in the paper"
_WIDTH = 100
_LEAST_FALL_S = 1.0
"""A smaller fall of TTS is none: a ratio to it would say nothing, and the target is missed."""


class Told(NamedTuple):
    """The part of the JSON, and the targets."""

    content: dict[str, Any]
    targets: list[Target]


def tell_ablation(campaign: Campaign, *, full: bool) -> Told:
    """Print all that follows from a campaign's runs, of the baseline and of another row or more.

    Targets are for when all rows have run.
    """
    runs = campaign.runs()
    first, *_, last = runs
    effective_ns = trained_ns(_results(runs[first]))
    figures = {row: spreads(_results(several), effective_ns) for row, several in runs.items()}
    _tell_figures(figures, runs)
    same = checks(runs)
    _tell_checks(same)
    paced = {
        row: [at_pace(result, effective_ns) for result in _results(several)]
        for row, several in runs.items()
    }
    shares = split(paced[first], paced[last])
    reason = why(paced[first], paced[last], shares)
    seconds = saved(paced[first], paced[last])
    _tell_split(shares, seconds, reason)
    predictions = _predictions(campaign, paced)
    _tell_predictions(predictions)
    content = {
        "rows": {
            row: {
                "runs": len(runs[row]),
                "every_s": runs[row][0].every_s,
                "standalone_publish_s": _standalone(runs[row]),
                "figures": {name: spread.median for name, spread in columns.items()},
                "values": {name: spread.values for name, spread in columns.items()},
            }
            for row, columns in figures.items()
        },
        "equal": {check.name: {"seen": check.seen, "holds": check.holds} for check in same},
        "split": {"here": shares, "saved_s": seconds, "paper": PAPER, "why": reason},
        "predictions": [asdict(prediction) for prediction in predictions],
    }
    if missing := [row.name for row in campaign.rows if row.name not in runs]:
        print(f"\nno target is looked at: {'; '.join(missing)} has not run yet")
        return Told(content, [])
    return Told(content, _targets(campaign.rows, figures, predictions, full=full))


def tell_sweep(campaigns: Sequence[tuple[str, str, Campaign]]) -> list[dict[str, Any]]:
    """Print table 2, of the campaigns of which all rows have run; return it as JSON-able data.

    ETT% is at the pace of each baseline.
    """
    rows, table = [], []
    for name, value, campaign in campaigns:
        if len(runs := campaign.runs()) < len(campaign.rows):
            continue
        one, other = (_results(several) for several in runs.values())
        before, after = (spreads(several, trained_ns(one)) for several in (one, other))
        ett = before["paced"].median, after["paced"].median
        wall = before["wall"].median, after["wall"].median
        table.append({"input": name, "value": value, "ett_pct": ett, "wall_s": wall})
        change = f"{ett[1] - ett[0]:+.1f}"
        cells = [*(f"{pct:.1f}" for pct in ett), change, *(f"{s:.0f}" for s in wall)]
        rows.append([f"{name}, {value}", *cells])
    if rows:
        _head("Table 2: other inputs, baseline and all levers")
        show(["", "ETT% baseline", "all", "points", "wall s baseline", "all"], rows)
    return table


def _tell_figures(
    figures: Mapping[str, Mapping[str, Spread]], runs: Mapping[str, Sequence[Run]]
) -> None:
    _head("Table 1: medians of the runs (least–most)")
    names = [f"{row}, {len(runs[row])} runs" for row in figures]
    rows = [
        [name, *map(str, columns.values())]
        for name, columns in zip(names, figures.values(), strict=True)
    ]
    show(["", *COLUMNS], rows)
    _head("The same: change against the row before")
    changes = [
        [row, *(f"{here.median - old.median:+.1f}" for here, old in zip(new, was, strict=True))]
        for (_, was), (row, new) in pairwise(
            (row, list(columns.values())) for row, columns in figures.items()
        )
    ]
    first, *_, last = (list(columns.values()) for columns in figures.values())
    whole = (f"{new.median - was.median:+.1f}" for new, was in zip(last, first, strict=True))
    show(["", *COLUMNS], [*changes, ["from first to last", *whole]])
    for row, several in runs.items():
        published = _standalone(several)
        then = f"; published in {published:.1f} s by a process of its own" if published else ""
        print(f"{row}: saved every {several[0].every_s:g} s{then}{_levers(several)}")


def _tell_checks(same: Sequence[Any]) -> None:
    _head("What must be equal in all rows")
    for check in same:
        print(f"{check.name}: {'equal' if check.holds else 'NOT EQUAL'}")
        for row, seen in check.seen.items():
            print(f"  {row}: {seen}")


def _tell_split(shares: Mapping[str, float], seconds: Mapping[str, float], reason: str) -> None:
    _head("Where the change of ETT% comes from, in percent of it, and the seconds saved a run")
    rows = [
        [part, f"{share:.0f}", str(PAPER.get(part, "–")), f"{seconds[part]:.1f}"]
        for part, share in shares.items()
    ]
    show(["", "here", "paper", "saved s"], rows)
    print(textwrap.fill(reason, _WIDTH))


def _predictions(
    campaign: Campaign, paced: Mapping[str, Sequence[Mapping[str, Any]]]
) -> list[Prediction]:
    rows = [row for row in campaign.rows if row.name in paced]
    return [
        predict(
            (before.name, paced[before.name]),
            (after.name, paced[after.name]),
            after.beyond(before),
            campaign.every_s(after),
        )
        for before, after in pairwise(rows)
    ]


def _tell_predictions(predictions: Sequence[Prediction]) -> None:
    _head("What-if: points of ETT% that the metric expects from the row before, and that came")
    rows = [
        [p.after, f"{p.predicted:+.1f}", f"{p.realised:+.1f}", f"{p.off:.1f}"] for p in predictions
    ]
    show(["", "expected", "came", "off by"], rows)
    for prediction in predictions:
        if prediction.silent:
            print(f"{prediction.after}: nothing is expected of {', '.join(prediction.silent)}")


def _targets(
    rows: Sequence[Row],
    figures: Mapping[str, Mapping[str, Spread]],
    predictions: Sequence[Prediction],
    *,
    full: bool,
) -> list[Target]:
    first, second, *_ = (_medians(columns) for columns in figures.values())
    last = _medians(list(figures.values())[-1])
    gains = {
        f"ETT% baseline to {row.name.removeprefix('+ ')}": _medians(figures[row.name]).paced
        - first.paced
        for row in rows
        if row.levers >= ALL.levers
    }
    shorter = first.compile_restart / second.compile_restart if second.compile_restart else 0.0
    sooner = first.tts - last.tts
    falls = (first.ttr - last.ttr) / sooner if sooner >= _LEAST_FALL_S else 0.0
    off = max(prediction.off for prediction in predictions)
    targets = [
        Target("compiling on restart is shorter than cold", shorter, "x", SHORTER, at_least=True),
        Target("TTR falls by more than TTS", falls, "x", FALLS, at_least=True),
        Target("what-if is off by", off, "points", OFF_POINTS),
    ]
    if not full:
        for name, gain in gains.items():
            print(f"\n{name}: {gain:+.1f} points (a target of the full form alone)")
        return targets
    return [
        *(Target(name, gain, "points", GAIN_POINTS, at_least=True) for name, gain in gains.items()),
        Target(THEIRS, first.ett, "%", AT_LEAST_PCT, at_least=True),
        Target(THEIRS, first.ett, "%", AT_MOST_PCT),
        *targets,
    ]


def _levers(runs: Sequence[Run]) -> str:
    """Return what became of the levers that were on, as the trainers told it."""
    told = Counter(
        f"{one['lever']} {one['outcome']}"
        for run in runs
        for attempt in run.result["attempts"]
        for one in attempt["levers"]
        if one["outcome"] != "off"
    )
    return "".join(f"; {what} {count} x" for what, count in sorted(told.items()))


def _medians(columns: Mapping[str, Spread]) -> Figures:
    return Figures(**{name: spread.median for name, spread in columns.items()})


def _standalone(runs: Sequence[Run]) -> float | None:
    took = [run.standalone_s for run in runs if run.standalone_s is not None]
    return median(took) if took else None


def _results(runs: Sequence[Run]) -> list[Mapping[str, Any]]:
    return [run.result for run in runs]


def _head(text: str) -> None:
    print(f"\n{text}")
