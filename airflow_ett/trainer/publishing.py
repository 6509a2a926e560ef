"""Publishing from within the trainer, while its accelerators wait for it.

The work is done by ``python -m airflow_ett.publish``, as elsewhere, in a process that the first
rank starts. The others wait in short exchanges, each well within what a process group allows.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from airflow_ett.config import JOB_VARIABLE
from airflow_ett.errors import ConfigurationError, PublishError
from airflow_ett.trainer.phases import Phases
from airflow_ett.trainer.termination import Termination

if TYPE_CHECKING:
    from airflow_ett.trainer.checkpointer import Checkpointer

_PULSE_S = 1.0
_GRACE_S = 5.0
_LAUNCHERS = {
    JOB_VARIABLE,
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT"),
}


class Options(TypedDict, total=False):
    """What may be said beside the model, the registry and the name."""

    version: str | None
    transforms: Sequence[str]
    golden: str | None
    tolerance: float | None
    force_latest: bool


class _Outcome(NamedTuple):
    """How it ended: what was published, or why nothing was; neither where it was stopped."""

    published: Mapping[str, Any] | None = None
    problem: str | None = None


def publish(
    saver: Checkpointer, phases: Phases, termination: Termination, options: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Save, and publish as the command does whose flags ``options`` are.

    All ranks call it. Returns what the command tells, None where SIGTERM reached the first rank
    before the end, which ends the publisher. Raises :class:`PublishError`,
    :class:`CheckpointError` and :class:`ConfigurationError`, on all ranks.
    """

    def stop() -> bool:
        return termination.received_ns is not None

    ranks = saver.ranks
    flags = list(_flags(options))
    if ranks.share(stop()):
        return None
    flags += _flags({"checkpoint": saver.commit()})
    outcome: _Outcome | None = None
    with contextlib.ExitStack() as stack:
        stack.enter_context(phases.begin("publish"))
        child = stack.enter_context(_Publisher(flags, stop)) if ranks.first else None
        while outcome is None:
            outcome = ranks.share(child.look() if child else None)
    if outcome.problem is not None:
        raise PublishError(outcome.problem)
    return outcome.published


class _Publisher:
    """The process that publishes; it is ended with the block."""

    def __init__(self, flags: Sequence[str], stop: Callable[[], bool]) -> None:
        self._flags = flags
        self._stop = stop
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> _Publisher:
        return self

    def __exit__(self, *error: object) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.communicate(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()

    def look(self) -> _Outcome | None:
        """Return the outcome, None where it is not there after a pulse. Raises nothing."""
        try:
            if self._stop():
                return _Outcome()
            self._process = self._process or self._begin()
            out, err = self._process.communicate(timeout=_PULSE_S)
            sys.stderr.write(err)
            if self._process.returncode != 0 and self._stop():  # the signal came to both
                return _Outcome()
            return _outcome(self._process.returncode, out, err)
        except subprocess.TimeoutExpired:
            return None
        except Exception as error:  # or the other ranks would wait for this one
            return _Outcome(problem=f"the publisher could not be run: {error!r}")

    def _begin(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "airflow_ett.publish", *self._flags],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )


def _outcome(status: int, out: str, err: str) -> _Outcome:
    if status != 0:
        said = err.strip().rpartition("\n")[2].removeprefix("not published: ")
        return _Outcome(problem=said or f"the publisher ended with exit code {status}")
    # Libraries may print after the result, which is the only line that is a JSON object.
    for line in reversed(out.splitlines()):
        with contextlib.suppress(ValueError):
            told = json.loads(line)
            if isinstance(told, dict):
                return _Outcome(told)
    return _Outcome(problem="the publisher ended, but told no result")


def _flags(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            yield flag
        elif isinstance(value, (list, tuple)):
            yield f"{flag}={','.join(map(str, value))}"
        elif isinstance(value, (str, int, float)) and value is not False:
            yield f"{flag}={value}"
        elif value is not None and value is not False:
            raise ConfigurationError(name, f"{value!r} is no text and no number")


def _environment() -> dict[str, str]:
    """Return this process's, with its modules, but without its rank and its accelerators."""
    kept = {name: value for name, value in os.environ.items() if not _is_launchers(name)}
    paths = os.pathsep.join(path for path in sys.path if path)
    return {**kept, "PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": ""}


def _is_launchers(name: str) -> bool:
    return name in _LAUNCHERS or name.startswith("TORCHELASTIC_")
