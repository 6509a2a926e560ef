"""What reads and fills the database: ``report``, ``ingest``, ``db``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from airflow_ett import config
from airflow_ett.cli import upkeep
from airflow_ett.cli.opening import opened
from airflow_ett.cli.streams import tell
from airflow_ett.errors import ConfigurationError
from airflow_ett.metric.report import render


def add_arguments(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add these commands to the parser's."""
    report = commands.add_parser("report", help="show jobs, newest first, and where time went")
    report.add_argument("--dag-id", help="only this Dag's jobs")
    report.add_argument("--run-id", help="only this run's jobs")
    report.add_argument("--json", action="store_true", help="print a list of all numbers")
    report.set_defaults(run=_report)

    ingest = commands.add_parser("ingest", help="read new lines of job logs into the database")
    ingest.add_argument(
        "place", metavar="RUN_DIR", help="a run directory or a root: a folder, or an fsspec URI"
    )
    ingest.set_defaults(run=_ingest)

    database = commands.add_parser("db", help="the database: make, check, prune, export, rebuild")
    actions = database.add_subparsers(required=True, metavar="ACTION")
    make = actions.add_parser(
        "upgrade",
        help="create the tables or bring them to this version",
        description="Create the tables or bring them to this version, in one transaction. Tables "
        "that are not what their revision makes are left as they are.",
    )
    make.set_defaults(run=_upgrade)
    check = actions.add_parser(
        "check",
        help="say whether the database can be used",
        description="Compare the tables with what this version needs. Nothing is changed.",
    )
    check.set_defaults(run=_check)
    upkeep.add_arguments(actions)


def _report(options: argparse.Namespace) -> int:
    from airflow_ett.store import queries

    store = opened()
    dag_ids = None if options.dag_id is None else [options.dag_id]
    rows = queries.jobs(store, dag_ids=dag_ids, run_id=options.run_id)
    results = [row.result for row in rows]
    if options.json:
        print(json.dumps(results, indent=2))
    elif results:
        print(render(results, store.components))
    else:
        wanted = [f"{n} {v}" for n, v in (("Dag", options.dag_id), ("run", options.run_id)) if v]
        print(f"No job{' of ' + ', '.join(wanted) if wanted else ''} has been measured.")
    return 0


def _ingest(options: argparse.Namespace) -> int:
    from airflow_ett.storage import is_folder, open_readable
    from airflow_ett.store import ingest_root, ingest_run_dir

    place: str = options.place
    folder = Path(place)
    if is_folder(place) and not folder.is_dir():
        problem = "is no folder" if folder.exists() else "does not exist"
        raise ConfigurationError("RUN_DIR", f"{folder} {problem}")
    store = opened()
    single = bool(open_readable(place).logs())
    report = ingest_run_dir(store, place) if single else ingest_root(store, place)
    for problem in report.problems:
        tell(problem)
    print(f"{len(report.jobs)} jobs, {report.new_events} new events, {report.bad_lines} bad lines")
    if is_folder(place) and not single and not any(folder.glob("*/*/*/*/g*/launcher")):
        root = config.load().run_root
        tell(f"no run directory lies below {folder}; the root is {root}")
    return 0


def _upgrade(_options: argparse.Namespace) -> int:
    from airflow_ett.store import upgrade

    upgrade(config.load().sql_alchemy_conn)
    print(f"The ETT database {opened().address} is up to date.")
    return 0


def _check(_options: argparse.Namespace) -> int:
    from airflow_ett.store import open_store
    from airflow_ett.store.examine import examine

    store = open_store(config.load().sql_alchemy_conn)
    for oddity in examine(store):
        tell(oddity)
    print(f"The ETT database {store.address} is up to date.")
    return 0
