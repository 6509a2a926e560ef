"""``import``: the logs of other meters as event logs."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from airflow_ett.errors import ConfigurationError, EventLogError
from airflow_ett.events import encode
from airflow_ett.peers import Problem, Told, read_ml_goodput, read_resiliency

_STANDARD = "-"
_FILE = "its JSON lines, or - for standard input"


def add_arguments(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the parser's."""
    peers = commands.add_parser("import", help="turn another meter's log into an event log")
    formats = peers.add_subparsers(required=True, metavar="FORMAT")

    goodput = formats.add_parser("ml-goodput", help="a log of Google's ml-goodput-measurement")
    goodput.add_argument(
        "--first-step-compile",
        action="store_true",
        help="book what an attempt's first step took more than the mean of the others to compile",
    )
    goodput.set_defaults(run=_ml_goodput)

    resiliency = formats.add_parser("resiliency", help="a log of Google's resiliency package")
    resiliency.set_defaults(run=_resiliency)

    for parser in (goodput, resiliency):
        parser.add_argument("file", metavar="FILE", help=_FILE)
        parser.add_argument("-o", dest="out", metavar="OUT", help="write here, not to the screen")


def _ml_goodput(options: argparse.Namespace) -> int:
    with _opened(options.file, options.out) as (source, out):
        told = read_ml_goodput(source, first_step_compile=options.first_step_compile)
        return _write(told, options.file, out)


def _resiliency(options: argparse.Namespace) -> int:
    with _opened(options.file, options.out) as (source, out):
        return _write(read_resiliency(source), options.file, out)


@contextmanager
def _opened(file: str, out: str | None) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    with ExitStack() as stack:
        source: BinaryIO = sys.stdin.buffer
        if file != _STANDARD:
            source = stack.enter_context(Path(file).open("rb"))
        if out is None:
            yield source, sys.stdout.buffer
            return
        if file != _STANDARD and Path(out).exists() and Path(out).samefile(file):
            raise ConfigurationError("-o", f"{out} is the file that is read; name another")
        yield source, stack.enter_context(Path(out).open("wb"))


def _write(told: Iterable[Told], name: str, out: BinaryIO) -> int:
    """Write the events as they come; tell each kind of problem once, and how often it came."""
    problems: Counter[str] = Counter()
    events = 0
    for item in told:
        if not isinstance(item, Problem):
            out.write(encode(item))
            events += 1
            continue
        if item.text not in problems:
            print(f"airflow-ett: {name}, line {item.line}: {item.text}", file=sys.stderr)
        problems[item.text] += 1
    out.flush()
    for text, count in problems.items():
        if count > 1:
            print(f"airflow-ett: {name}: {count} times: {text}", file=sys.stderr)
    if not events:
        raise EventLogError(f"{name}: no event of this format is in it")
    return 0
