"""``airflow-ett``: reports, ingest, the database, the demo. Starts without importing Airflow."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from airflow_ett import config, demo
from airflow_ett.errors import ConfigurationError, EttError, StoreError

_EXIT_CODES = """\
exit codes:
  0  done
  1  it failed; the message says why
  2  the database is missing, old, too new or away; or the command line is wrong

The database is [ett] sql_alchemy_conn of the Airflow under AIRFLOW_HOME
(or AIRFLOW__ETT__SQL_ALCHEMY_CONN).
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except StoreError as error:
        print(f"airflow-ett: {error}{_where()}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader, such as head, has seen enough; nothing may be flushed to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (EttError, OSError) as error:
        print(f"airflow-ett: {error}", file=sys.stderr)
        return 1


def _where() -> str:
    """A hint for those who forgot to say which Airflow they mean."""
    if any(name in os.environ for name in ("AIRFLOW_HOME", "AIRFLOW__ETT__SQL_ALCHEMY_CONN")):
        return ""
    return " (AIRFLOW_HOME is not set, so this is the Airflow in ~/airflow.)"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="airflow-ett",
        description="Effective training time of the trainings that Airflow launched.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

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

    show = commands.add_parser("demo", help="train, fail, resume, publish and measure, for real")
    demo.add_arguments(show)
    show.set_defaults(run=demo.run)
    return parser


def _report(options: argparse.Namespace) -> int:
    from airflow_ett.fleet.report import render
    from airflow_ett.store import open_store, queries

    store = open_store(config.load().sql_alchemy_conn)
    store.check()
    dag_ids = None if options.dag_id is None else [options.dag_id]
    rows = queries.jobs(store, dag_ids=dag_ids, run_id=options.run_id)
    results = [row.result for row in rows]
    if options.json:
        print(json.dumps(results, indent=2))
    elif results:
        print(render(results))
    else:
        wanted = [f"{n} {v}" for n, v in (("Dag", options.dag_id), ("run", options.run_id)) if v]
        print(f"No job{' of ' + ', '.join(wanted) if wanted else ''} has been measured.")
    return 0


def _ingest(options: argparse.Namespace) -> int:
    from airflow_ett.events import RunDir
    from airflow_ett.store import ingest_root, ingest_run_dir, open_store

    folder: Path = options.folder
    if not folder.is_dir():
        problem = "is no folder" if folder.exists() else "does not exist"
        raise ConfigurationError("RUN_DIR", f"{folder} {problem}")
    store = open_store(config.load().sql_alchemy_conn)
    store.check()
    single = any(RunDir(folder).logs())
    report = ingest_run_dir(store, folder) if single else ingest_root(store, folder)
    for problem in report.problems:
        print(f"airflow-ett: {problem}", file=sys.stderr)
    print(f"{len(report.jobs)} jobs, {report.new_events} new events, {report.bad_lines} bad lines")
    if not single and not any(folder.glob("*/*/*/*/g*/launcher")):
        root = config.load().run_root
        print(
            f"airflow-ett: no run directory lies below {folder}; the root is {root}",
            file=sys.stderr,
        )
    return 0


def _upgrade(_options: argparse.Namespace) -> int:
    from airflow_ett.store import open_store, upgrade

    url = config.load().sql_alchemy_conn
    upgrade(url)
    print(f"The ETT database {open_store(url).address} is up to date.")
    return 0


def _check(_options: argparse.Namespace) -> int:
    from airflow_ett.store import open_store

    store = open_store(config.load().sql_alchemy_conn)
    store.check()
    print(f"The ETT database {store.address} is up to date.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
