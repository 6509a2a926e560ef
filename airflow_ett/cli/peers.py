"""``import``: the logs of other meters as event logs."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import BinaryIO

from airflow_ett.cli.streams import STANDARD_INPUT, standard_input, tell
from airflow_ett.errors import ConfigurationError, EventLogError
from airflow_ett.events import encode
from airflow_ett.peers import Problem, Told, read_ml_goodput, read_resiliency

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
    with _source(options.file, options.out) as source:
        told = read_ml_goodput(source, first_step_compile=options.first_step_compile)
        return _write(told, options.file, options.out)


def _resiliency(options: argparse.Namespace) -> int:
    with _source(options.file, options.out) as source:
        return _write(read_resiliency(source), options.file, options.out)


def _source(file: str, out: str | None) -> AbstractContextManager[BinaryIO]:
    if file == STANDARD_INPUT:
        return nullcontext(standard_input())
    if out is not None and Path(out).exists() and Path(out).samefile(file):
        raise ConfigurationError("-o", f"{out} is the file that is read; name another")
    return Path(file).open("rb")


def _write(told: Iterable[Told], name: str, path: str | None) -> int:
    """Write the events as they come; tell each kind of problem once, and how often it came.

    The file is opened, and so emptied, once there is an event for it.
    """
    problems: Counter[str] = Counter()
    out: BinaryIO | None = None
    with ExitStack() as stack:
        for item in told:
            if not isinstance(item, Problem):
                out = out or stack.enter_context(_opened(path))
                out.write(encode(item))
                continue
            if item.text not in problems:
                tell(f"{name}, line {item.line}: {item.text}")
            problems[item.text] += 1
    for text, count in problems.items():
        if count > 1:
            tell(f"{name}: {count} times: {text}")
    if out is None:
        raise EventLogError(f"{name}: no event of this format is in it")
    return 0


def _opened(path: str | None) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdout.buffer) if path is None else Path(path).open("wb")
