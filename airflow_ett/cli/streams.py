"""Standard input, output and error, whatever encoding they have and whether they are open."""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import BinaryIO

from airflow_ett.errors import ConfigurationError
from airflow_ett.metric.report import escaped

STANDARD_INPUT = "-"
"""The name of standard input on the command line."""

_PLAIN = "airflow_ett.plain"
_MARKS = str.maketrans({"\u00a0": " ", "–": "-", "—": "-", "\u2212": "-", "±": "+-", "…": "..."})


def prepare() -> None:
    """Make output and error never fail over a character; a closed error stream swallows all.

    Raises :class:`ConfigurationError` where standard output is closed.
    """
    if sys.stderr is None:
        # print() would write to standard output instead.
        sys.stderr = io.TextIOWrapper(io.FileIO(os.devnull, "w"))
    if sys.stdout is None:
        raise ConfigurationError("standard output", "it is closed; send it to /dev/null instead")
    codecs.register_error(_PLAIN, _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_PLAIN)


def standard_input() -> BinaryIO:
    """Return the bytes of standard input; raises :class:`ConfigurationError` if it is closed."""
    if sys.stdin is None:
        raise ConfigurationError(STANDARD_INPUT, "standard input is closed; name a file")
    return sys.stdin.buffer


def tell(message: str) -> None:
    """Print one line about the input on standard error."""
    print(f"airflow-ett: {escaped(message)}", file=sys.stderr)


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Replace what the encoding lacks: our own marks by ASCII, all else by a question mark."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    marks = error.object[error.start : error.end].translate(_MARKS)
    return marks.encode("ascii", "replace").decode("ascii"), error.end
