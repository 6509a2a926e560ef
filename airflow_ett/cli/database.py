"""What reads and fills the database: ``report``, ``ingest``, ``db``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_ett import config
from airflow_ett.cli.streams import tell
from airflow_ett.errors import ConfigurationError
from airflow_ett.events import RunDir
from airflow_ett.metric.phases import configured
from airflow_ett.metric.report import render

if TYPE_CHECKING:
    from airflow_ett.store import Store


def add_arguments(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add these commands to the parser's."""
    report = commands.add_parser("report", help="show jobs, newest first, and where time went")
    report.add_argument("--dag-id", help="only this Dag's jobs")
    report.add_argument("--run-id", help="only this run's jobs")
    report.add_argument("--json", action="store_true", help="print a list of all numbers")
    report.set_defaults(run=_report)

    ingest = commands.add_parser("ingest", help="read new lines of job logs into the database")
    ingest.add_argument("folder", type=Path, metavar="RUN_DIR", help="a run directory or a root")
    ingest.set_defaults(run=_ingest)

    database = commands.add_parser("db", help="the database").add_subparsers(
        required=True, metavar="ACTION"
    )
    database.add_parser(
        "upgrade", help="create the tables or bring them to this version"
    ).set_defaults(run=_upgrade)
    database.add_parser("check", help="say whether the database can be used").set_defaults(
        run=_check
    )


def _report(options: argparse.Namespace) -> int:
    from airflow_ett.store import queries

    store = _store()
    store.check()
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
    from airflow_ett.store import ingest_root, ingest_run_dir

    folder: Path = options.folder
    if not folder.is_dir():
        problem = "is no folder" if folder.exists() else "does not exist"
        raise ConfigurationError("RUN_DIR", f"{folder} {problem}")
    store = _store()
    store.check()
    single = any(RunDir(folder).logs())
    report = ingest_run_dir(store, folder) if single else ingest_root(store, folder)
    for problem in report.problems:
        tell(problem)
    print(f"{len(report.jobs)} jobs, {report.new_events} new events, {report.bad_lines} bad lines")
    if not single and not any(folder.glob("*/*/*/*/g*/launcher")):
        root = config.load().run_root
        tell(f"no run directory lies below {folder}; the root is {root}")
    return 0


def _upgrade(_options: argparse.Namespace) -> int:
    from airflow_ett.store import upgrade

    upgrade(config.load().sql_alchemy_conn)
    print(f"The ETT database {_store().address} is up to date.")
    return 0


def _check(_options: argparse.Namespace) -> int:
    store = _store()
    store.check()
    print(f"The ETT database {store.address} is up to date.")
    return 0


def _store() -> Store:
    from airflow_ett.store import open_store

    settings = config.load()
    return open_store(settings.sql_alchemy_conn, components=configured(settings))
