"""``schedulers``: what is installed to train on, what each supports, and whether it answers."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from contextlib import redirect_stdout
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_ett.cli.streams import tell
from airflow_ett.metric.report import table

if TYPE_CHECKING:
    from airflow_ett.launch.survey import Surveyed

_HEADS = {
    "package": "From",
    "exit_codes": "Exit codes",
    "requeues": "Requeues",
    "avoids_hosts": "Avoids hosts",
    "workspaces": "Workspaces",
    "output": "Output",
    "ids_are_names": "Ids are names",
    "answers": "Answers",
}

_WORDS = {True: "yes", False: "no", None: "unknown", "torchx": "TorchX"}


def add_arguments(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the parser's."""
    schedulers = commands.add_parser(
        "schedulers",
        help="what is installed to train on, what it supports, and whether it answers",
        description="List every installed TorchX scheduler: what it supports, told from its "
        "interfaces, and whether it answers now from this machine. Nothing is submitted, and one "
        "that hangs is waited for ten seconds.",
    )
    schedulers.add_argument("--json", action="store_true", help="print a list of all that is known")
    schedulers.set_defaults(run=_schedulers)


def _schedulers(options: argparse.Namespace) -> int:
    from airflow_ett.launch.survey import survey

    warnings.simplefilter("ignore")
    with redirect_stdout(sys.stderr):  # schedulers may print
        rows = [_row(found) for found in survey()]
    if options.json:
        print(json.dumps(rows, indent=2))
        return 0
    heads = ("Scheduler", *_HEADS.values())
    cells = [(row["scheduler"], *(_cell(row[name]) for name in _HEADS)) for row in rows]
    print(table([heads, *cells], texts=len(heads)))
    for row in rows:
        if row["problem"]:
            tell(f"{row['scheduler']}: {row['problem']}")
    return 0


def _row(found: Surveyed) -> dict[str, Any]:
    """Return a scheduler as JSON-able data."""
    known = asdict(found.supports) if found.supports else {}
    told = {name: known.get(name) for name in _HEADS}
    return {"scheduler": found.name, **told, "answers": found.answers, "problem": found.problem}


def _cell(value: bool | str | None) -> str:
    return _WORDS.get(value, str(value))
