"""Numbers straight from event logs, without a database: ``metric`` and what builds on it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from airflow_ett import config
from airflow_ett.cli import texts
from airflow_ett.cli.logs import Jobs
from airflow_ett.cli.values import instant, overlap, reduction, window
from airflow_ett.errors import ConfigurationError
from airflow_ett.metric.phases import configured
from airflow_ett.metric.plans.compare import compare
from airflow_ett.metric.plans.interval import Costs, observe, plan
from airflow_ett.metric.plans.recompiles import recompiles
from airflow_ett.metric.plans.whatif import halves, what_if
from airflow_ett.metric.report import render

_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
_LOG = "a file of events, a run directory, a job's URI or address, or - for standard input"


def add_arguments(commands: _Commands) -> None:
    """Add these commands to the parser's."""
    for add in (_add_metric, _add_interval, _add_whatif, _add_compare, _add_recompiles):
        add(commands)


def _add_metric(commands: _Commands) -> None:
    metric = commands.add_parser(
        "metric",
        help="measure the jobs in event logs",
        description="Measure the jobs in event logs. Lines that are no events are told on standard "
        "error and change neither the rest nor the exit code.",
    )
    metric.add_argument("logs", nargs="+", metavar="LOG", help=_LOG)
    metric.add_argument(
        "--exclude",
        action="append",
        default=[],
        type=window,
        metavar="FROM/TO",
        help="planned maintenance, which is left out of every clock; may be repeated",
    )
    metric.add_argument(
        "--now",
        type=instant,
        metavar="TIME",
        help="the present for jobs that still run; by default that of the clock for a run "
        "directory, else the time of the newest event",
    )
    _finish(metric, _metric)


def _add_whatif(commands: _Commands) -> None:
    whatif = commands.add_parser(
        "whatif",
        help="what shorter phases would buy",
        description="What shorter phases would buy. Without a change: what halving each would.",
    )
    whatif.add_argument("logs", nargs="+", metavar="LOG", help=_LOG)
    whatif.add_argument(
        "--reduce",
        action="append",
        default=[],
        type=reduction,
        metavar="PHASE=CUT",
        help="cut a phase in each attempt: compile=50%%, first_batch=30s; may be repeated",
    )
    whatif.add_argument(
        "--overlap",
        action="append",
        default=[],
        type=overlap,
        metavar="PHASE,PHASE",
        help="run phases at the same time; may be repeated",
    )
    _finish(whatif, _whatif)


def _add_compare(commands: _Commands) -> None:
    comparison = commands.add_parser(
        "compare",
        help="what changed between two sets of jobs",
        description="The change of ETT% between two sets of jobs, split by what was lost. Jobs "
        "weigh by their wall clock.",
    )
    for side in ("before", "after"):
        comparison.add_argument(
            f"--{side}", nargs="+", required=True, metavar="LOG", help=f"jobs {side}: {_LOG}"
        )
    _finish(comparison, _compare)


def _add_recompiles(commands: _Commands) -> None:
    recompiling = commands.add_parser(
        "recompiles",
        help="what was compiled anew, why, and the lines that help",
        description="What jobs compiled anew, by what had changed, how long the training waited "
        "for it, and the lines to add against it.",
    )
    recompiling.add_argument("logs", nargs="+", metavar="LOG", help=_LOG)
    _finish(recompiling, _recompiles)


def _add_interval(commands: _Commands) -> None:
    interval = commands.add_parser(
        "interval",
        help="how often to save checkpoints",
        description="The checkpoint interval at which the least time is wasted, from two numbers "
        "or from what jobs have shown.",
    )
    interval.add_argument("logs", nargs="*", metavar="LOG", help=f"{_LOG}; instead of numbers")
    for name, unit, meaning in (
        ("--blocking", "S", "for how many seconds a save blocks training"),
        ("--failures-per-day", "N", "failures in 24 hours of training"),
        ("--current", "S", "the interval in use (default: that of the logs)"),
        ("--min", "S", "the shortest interval allowed"),
        ("--max", "S", "the longest interval allowed"),
    ):
        interval.add_argument(name, type=float, metavar=unit, help=meaning)
    _finish(interval, _interval)


def _finish(parser: argparse.ArgumentParser, run: Any) -> None:
    parser.add_argument("--json", action="store_true", help="print all numbers as JSON")
    parser.set_defaults(run=run)


def _metric(options: argparse.Namespace) -> int:
    components = configured(config.load())
    jobs = Jobs(options.logs, components).measure(now_ns=options.now, exclude=options.exclude)
    results = [job.as_dict() for job in jobs]
    return _show(options, results, render(results, components))


def _interval(options: argparse.Namespace) -> int:
    numbers = (options.blocking, options.failures_per_day)
    if options.logs and numbers == (None, None):
        costs, current = observe(_results(options.logs))
    elif not options.logs and None not in numbers:
        costs, current = Costs(*numbers), None
    else:
        raise ConfigurationError(
            "interval", "give either --blocking and --failures-per-day, or logs"
        )
    found = plan(
        costs,
        current_s=current if options.current is None else options.current,
        at_least_s=options.min,
        at_most_s=options.max,
    )
    return _show(options, found.as_dict(), texts.interval(found))


def _whatif(options: argparse.Namespace) -> int:
    results = _results(options.logs)
    found = what_if(results, [*options.reduce, *options.overlap] or halves(results))
    return _show(options, found.as_dict(), texts.whatif(found))


def _compare(options: argparse.Namespace) -> int:
    found = compare(_results(options.before), _results(options.after))
    return _show(options, found.as_dict(), texts.comparison(found))


def _recompiles(options: argparse.Namespace) -> int:
    found = recompiles(_results(options.logs))
    return _show(options, found.as_dict(), texts.recompiles(found))


def _results(logs: Sequence[str]) -> list[dict[str, Any]]:
    return [job.as_dict() for job in Jobs(logs, configured(config.load())).measure()]


def _show(options: argparse.Namespace, data: object, text: str) -> int:
    print(json.dumps(data, indent=2) if options.json else text)
    return 0
