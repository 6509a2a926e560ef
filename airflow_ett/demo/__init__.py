"""The demo: a real Airflow on this machine trains, fails twice, resumes, publishes and reports."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import signal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from airflow_ett.errors import DemoError

if TYPE_CHECKING:
    from airflow_ett.demo.course import Demo

_NEEDS = ("airflow", "torchx", "torch")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(options: argparse.Namespace) -> int:
    """Run the demo with parsed options and return the exit code.

    0 after a complete demo, 130 when interrupted before its end. Whatever was started is stopped.
    Raises :class:`EttError` when the demo cannot go on.
    """
    handlers = {number: signal.signal(number, _interrupt) for number in _SIGNALS}
    try:
        return _run(options.home, options.port, keep=options.keep)
    except KeyboardInterrupt:
        return 130
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the demo's options to a parser."""
    parser.add_argument(
        "--home", type=Path, default=Path(".demo"), help="folder of its Airflow (default: .demo)"
    )
    parser.add_argument(
        "--port", type=int, default=0, help="port of Airflow's UI (default: a free one)"
    )
    parser.add_argument(
        "--keep",
        action=argparse.BooleanOptionalAction,
        default=os.isatty(0) and os.isatty(1),
        help="keep Airflow up at the end until Ctrl-C (default: on a terminal)",
    )


def _run(home: Path, port: int, *, keep: bool) -> int:
    if missing := [name for name in _NEEDS if importlib.util.find_spec(name) is None]:
        raise DemoError(
            f"not installed: {', '.join(missing)}; pip install 'airflow-ett[airflow,torch]'"
        )
    from airflow_ett.demo.course import Demo
    from airflow_ett.demo.home import demo_home
    from airflow_ett.demo.stack import free_port

    free_port(port)  # before the home is emptied of what the last demo left
    with demo_home(home) as folder:
        demo = Demo(folder, port, lambda line: print(line, flush=True))
        try:
            demo.run()
            if keep:
                _wait(demo)
        finally:
            print("stopping", flush=True)
            # An impatient second Ctrl-C must not leave processes behind.
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            demo.stack.stop()
        return 0


def _wait(demo: Demo) -> None:
    """Keep the demo's Airflow up until the user has seen enough."""
    print(f"Airflow stays up at {demo.stack.url} until Ctrl-C ({demo.sign_in}).", flush=True)
    print(f"The run, second by second: {demo.run_tab}", flush=True)
    print(f"The DAG tab: {demo.tab}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
