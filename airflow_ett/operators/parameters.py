"""Checks of operators' parameters, by the parameter's name.

Messages quote no value of ``env``, ``cfg`` and ``component_args``: it may be a secret.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow_ett.errors import ConfigurationError
from airflow_ett.launch.preparation import late

_LONGEST_S = 1e12
"""Beyond that a time in nanoseconds has no whole number."""


def check_request(parameters: Mapping[str, Any], *, rendered: bool) -> None:
    """Raise :class:`ConfigurationError` unless what a training asks for has the right types.

    ``parameters`` are the operator's templated ones by name. Before they are ``rendered`` those
    that are :func:`late` pass.
    """
    for parameter, value in parameters.items():
        if rendered or not late(value):
            for problem in _problems(parameter, value):
                raise ConfigurationError(parameter, problem)


def _problems(parameter: str, value: Any) -> Iterator[str]:
    if parameter == "env":
        return _variables(value)
    if parameter == "cfg":
        return _options(value)
    return _arguments(value) if parameter == "component_args" else _text(parameter, value)


def _variables(value: Any) -> Iterator[str]:
    if value is not None and not isinstance(value, Mapping):
        yield f"must be a dictionary of variables, not {_a(value)}"
        return
    for name, content in (value or {}).items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            yield f"{name!r} is no name of a variable"
        if not _plain(content):
            yield f"{name} must be a text or a number, not {_a(content)}"
        if "\0" in str(content):
            yield f"{name} must not contain NUL"


def _options(value: Any) -> Iterator[str]:
    if value is not None and not isinstance(value, Mapping):
        yield f"must be a dictionary of the scheduler's options, not {_a(value)}"


def _arguments(value: Any) -> Iterator[str]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        yield f"must be a list of texts, as on a command line, not {_a(value)}"
        return
    for position, item in enumerate(value, start=1):
        if not _plain(item):
            yield f"number {position} must be a text or a number, not {_a(item)}"
        if "\0" in str(item):
            yield f"number {position} must not contain NUL"


_OPTIONAL = ("scheduler", "resource", "checkpoint_uri", "init_from", "torchx_conn_id")
_MAY_BE_EMPTY = ("scheduler", "checkpoint_uri", "torchx_conn_id")


def _text(parameter: str, value: Any) -> Iterator[str]:
    if value is None and parameter in _OPTIONAL:
        return
    mapping = parameter == "resource" and isinstance(value, Mapping)
    if not isinstance(value, str | os.PathLike) and not mapping:
        yield f"must be a text, not {_a(value)}"
    elif not str(value) and parameter not in _MAY_BE_EMPTY:
        yield "must not be empty"


def _plain(value: object) -> bool:
    """Return whether trainers can get it as text."""
    several = isinstance(value, Collection) and not isinstance(value, str)
    return late(value) or (value is not None and not several)


def _a(value: object) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


def instance(parameter: str, value: object, kind: type, what: str) -> None:
    """Raise :class:`ConfigurationError` unless the value is of a kind, ``what`` in words."""
    if not isinstance(value, kind):
        raise ConfigurationError(parameter, f"must be {what}, not {value!r}")


def seconds(parameter: str, value: float | timedelta, *, at_most_s: float = _LONGEST_S) -> float:
    """Return a length of time in seconds.

    Raises :class:`ConfigurationError` unless it is a finite length above 0, and no longer than
    ``at_most_s``.
    """
    length = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(length, bool) or not isinstance(length, int | float):
        problem = f"must be seconds or a timedelta, not {value!r}"
        raise ConfigurationError(parameter, problem)
    if not 0 < length < math.inf:
        raise ConfigurationError(parameter, f"must be above 0 s and finite, not {value}")
    if length > at_most_s:
        raise ConfigurationError(parameter, f"must be at most {at_most_s:g} s, not {value}")
    return float(length)


def count(parameter: str, value: int) -> None:
    """Raise :class:`ConfigurationError` unless the value is a whole number, 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigurationError(parameter, f"must be a whole number, 0 or more, not {value!r}")


def text(value: object) -> str | None:
    """Return a path or the like as text, which triggers can carry; None stays."""
    return None if value is None else str(value)
