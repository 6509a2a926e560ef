"""The publisher as a process of its own beside the task: Airflow needs no PyTorch for it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_ett.errors import PublishError
from airflow_ett.hooks.masking import redact
from airflow_ett.publish.request import Request

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

_LAST_LINES = 3

_GRACE_S = 3.0
"""For so long a publisher that is told to end may clear away what it has staged; Airflow ends a
task's process 5 s after it was told to."""


class Child:
    """One publisher at a time, with all processes that it starts, in a session of their own."""

    def __init__(self, python: str, log: Logger) -> None:
        self._python = python
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._ended = False

    def publish(self, request: Request, secrets: Mapping[str, str]) -> dict[str, Any]:
        """Run the publisher; return what it says it has published.

        ``secrets`` are added to its environment. Whatever interrupts this ends it, too. Raises
        :class:`PublishError` with its last words.
        """
        lines: list[str] = []
        try:
            for line in self._run(arguments(request), secrets):
                lines.append(line)
                self._log.info("%s", line)
        finally:
            self._end()
        status = self._process.returncode if self._process else None
        if status != 0:
            words = " / ".join(lines[-_LAST_LINES:]) or "none"
            raise PublishError(
                f"The publisher ended with exit code {status}. Its last words: {words}"
            )
        # Libraries may print after the result, which is the only line that is a JSON object.
        result = next((line for line in reversed(lines) if line.startswith("{")), None)
        if result is None:
            raise PublishError(f"The publisher of {request.checkpoint} ended, but told no result.")
        published: dict[str, Any] = json.loads(result)
        return published

    def end(self) -> None:
        """Tell the publisher to end, or as it starts; nothing of it becomes visible.

        Safe in a signal handler.
        """
        self._ended = True
        self._signal(signal.SIGTERM)

    def _end(self) -> None:
        """See to the end of the publisher, if it is not over."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        self._signal(signal.SIGTERM)
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)

    def _run(self, flags: Sequence[str], secrets: Mapping[str, str]) -> Iterator[str]:
        """Start the process and yield its lines, without secrets; it is over at their end."""
        self._process = process = subprocess.Popen(
            [self._python, "-m", "airflow_ett.publish", *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **secrets},
            text=True,
            errors="replace",
            start_new_session=True,
        )
        if self._ended:
            self.end()
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                yield redact(line.rstrip())
        process.wait()


def arguments(request: Request) -> list[str]:
    """Return the flags of ``python -m airflow_ett.publish`` that ask for the same."""
    values = {
        "--checkpoint": request.checkpoint,
        "--model": request.model,
        "--registry": request.registry,
        "--name": request.name,
        "--version": request.version,
        "--transforms": ",".join(request.transforms) or None,
        "--golden": request.golden,
        "--tolerance": None if request.tolerance is None else repr(request.tolerance),
        "--training": json.dumps(dict(request.training)) if request.training else None,
    }
    flags = [f"{flag}={value}" for flag, value in values.items() if value is not None]
    return [*flags, "--force-latest"] if request.force_latest else flags
