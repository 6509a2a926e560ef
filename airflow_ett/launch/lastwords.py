"""What an attempt that failed said last, and how that is told to people."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow_ett.errors import LaunchError
from airflow_ett.events import Cause, JobKey
from airflow_ett.launch.history import Submission

if TYPE_CHECKING:
    from airflow_ett.launch.gateway import Gateway

_LINES = 20
_LENGTH = 400
"""Characters of a line; with 20 lines evidence stays a page long."""

_TRACE_LINES = 12
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[^\S\t ]|[\x00-\x08\x0e-\x1f\x7f]")
"""A terminal's colours and whatever else is no text."""

_GO_ON = "Relaunches are used up (max_relaunches): a retry, or clearing the task, goes on."

_LATE = (
    "Before another could follow, the deadline passed that execution_timeout sets: a retry, or "
    "clearing the task, goes on."
)

_HINTS: dict[Cause | None, str] = {
    Cause.PREEMPTED: _GO_ON,
    Cause.INFRASTRUCTURE: _GO_ON,
    Cause.OUT_OF_MEMORY: "Give it more memory, or a smaller batch.",
    Cause.TIMEOUT: "Raise the limit that it ran into, or clear the task to go on.",
    Cause.VANISHED: "See at the scheduler what became of the app.",
    Cause.USER_CANCELLED: "Clear the task to go on.",
}


def last_words(gateway: Gateway, handle: str, node: int, *, quote: bool = True) -> dict[str, Any]:
    """Return the address of a node's output for evidence, with ``quote`` its last lines, too.

    What the scheduler does not tell is left out.
    """
    words: dict[str, Any] = {"handle": handle, "node": node}
    with contextlib.suppress(LaunchError):
        words["log"] = gateway.log_location(handle, node)
        if quote:
            words["lines"] = [_plain(line) for line in gateway.last_lines(handle, node, _LINES)]
    return words


def describe(
    job: JobKey,
    ended: Submission,
    *,
    late: bool = False,
    repeated: bool = False,
    checkpoint: str | None = None,
) -> str:
    """Say how a submission ended, why, where to look, and from where the next one goes on.

    ``late``: another would have followed in the same try, but for its deadline.
    """
    where = f"Job {job}, submission {ended.number}"
    if ended.cause is None and not late:
        return f"{where} ({ended.handle}): {ended.evidence}"
    parts = [f"{where} ended with cause {ended.cause or 'none'}: {ended.evidence}"]
    if repeated:
        parts.append(f"The attempt before it failed with the same error at cursor {ended.cursor}.")
    if hint := _LATE if late else _HINTS.get(ended.cause):
        parts.append(hint)
    parts += (f"  {name}: {value}" for name, value in _facts(ended, checkpoint) if value)
    return "\n".join([*parts, *_quoted(ended.proof)])


def _facts(ended: Submission, checkpoint: str | None) -> Iterator[tuple[str, str | None]]:
    """Yield what is known of the end, each with its name; None where it is not."""
    proof = ended.proof
    for name in ("exit_code", "signal"):
        yield name.replace("_", " "), None if proof.get(name) is None else str(proof[name])
    yield "app", ended.handle
    yield "log", proof.get("log")
    yield "data position", None if ended.cursor is None else f"cursor {ended.cursor}"
    yield "next resumes from", checkpoint


def _quoted(proof: Mapping[str, Any]) -> Iterator[str]:
    """Yield the last lines of the log and, unless they show it, the end of the traceback."""
    lines: list[str] = proof.get("lines") or []
    error = proof.get("error") or {}
    trace = str(error.get("traceback") or "").strip().splitlines()
    if trace and not any(str(error.get("type")) in line for line in lines):
        yield "End of its traceback:"
        yield from (f"  {_plain(line)}" for line in trace[-_TRACE_LINES:])
    if lines:
        yield f"Last lines of node {proof.get('node')}'s output:"
        yield from (f"  {line}" for line in lines)


def _plain(line: str) -> str:
    text = _CONTROL.sub("", line)
    return text if len(text) <= _LENGTH else f"{text[:_LENGTH]}…"
