"""``airflow-ett``: numbers, database, schedulers, demo. Starts without importing Airflow."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from airflow_ett import demo
from airflow_ett.cli import database, numbers, peers, schedulers, streams
from airflow_ett.errors import EttError, StoreError

_EXIT_CODES = """\
exit codes:
  0  done
  1  it failed, or a number or a name cannot be used; the message says why
  2  an option is unknown, missing or malformed, or the database is missing, old,
     too new or away
  130  it was interrupted

The database is [ett] sql_alchemy_conn of the Airflow under AIRFLOW_HOME
(or AIRFLOW__ETT__SQL_ALCHEMY_CONN).
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        streams.prepare()
        options = _parser().parse_args(arguments)
        code = int(options.run(options))
        sys.stdout.flush()
        return code
    except StoreError as error:
        return _fail(f"{error}{_where()}", 2)
    except BrokenPipeError:
        # The reader, such as head, has seen enough; nothing may be flushed to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except EttError as error:
        return _fail(str(error))
    except OSError as error:
        name = "" if error.filename is None else f"{error.filename}: "
        return _fail(f"{name}{error.strerror or error}")
    except KeyboardInterrupt:
        return 130
    except ModuleNotFoundError as error:
        if str(error.name).startswith("airflow_ett"):
            raise
        return _fail(f"{error.name} is not installed here; pip install 'airflow-ett[airflow]'")


def _fail(message: str, code: int = 1) -> int:
    print(f"airflow-ett: {message}", file=sys.stderr)
    return code


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
    for module in (database, numbers, peers, schedulers):
        module.add_arguments(commands)

    show = commands.add_parser("demo", help="train, fail, resume, publish and measure, for real")
    demo.add_arguments(show)
    show.set_defaults(run=demo.run)
    return parser
