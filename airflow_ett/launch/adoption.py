"""Adopt, submit or restart: what a process that has just claimed a job does first. A pure table.

=====================================  ==========================================  =========
history                                sign of a user's clear                      action
=====================================  ==========================================  =========
no submission                          –                                           SUBMIT
over, with success                     –                                           REPORT
over, in a former try                  –                                           SUBMIT
over, in this try, to be relaunched    –                                           SUBMIT
over, in this try, for good            –                                           REPORT
intended, handle unknown               none                                        FIND
live, handle known                     none                                        ADOPT
live, cancel already requested         –                                           AWAIT_END
intended or live                       ``user_restart``, or max_tries has grown    RESTART
=====================================  ==========================================  =========

A success that Airflow has not heard of is reported by whichever try comes next. "In this try"
happens when a trigger starts again: a triggerer died after the end was noted and before Airflow
knew. ``FIND`` looks the app up by its deterministic name and submits it under the same name when it
is not there; ``RESTART`` cancels once, waits until the app is over and submits; ``AWAIT_END`` waits
and submits. A clear is recorded by the path that killed the old try (``user_restart``); Airflow
raises ``max_tries`` by a clear and never by a retry: the second sign.
"""

from __future__ import annotations

from enum import StrEnum

from airflow_ett.events import RELAUNCH_CAUSES
from airflow_ett.launch.history import History

_BACKOFF_CAP_S = 30.0


class Action(StrEnum):
    """What to do first."""

    SUBMIT = "submit"
    FIND = "find"
    ADOPT = "adopt"
    RESTART = "restart"
    AWAIT_END = "await_end"
    REPORT = "report"


def decide(history: History, *, try_number: int, max_tries: int, max_relaunches: int = 0) -> Action:
    """Return the first action of a try; ``history`` does not contain its own claim yet."""
    last, live = history.last, history.live
    if live is None:
        if last is not None and last.cause is None:
            return Action.REPORT
        over = last is not None and last.try_number == try_number
        if over and not may_relaunch(history, max_relaunches):
            return Action.REPORT
        return Action.SUBMIT
    if live.cancel_reason is not None:
        return Action.AWAIT_END
    if history.user_restart or cleared(history, try_number=try_number, max_tries=max_tries):
        return Action.RESTART
    return Action.FIND if live.handle is None else Action.ADOPT


def cleared(history: History, *, try_number: int, max_tries: int) -> bool:
    """Return whether the user cleared the task between the last claim and this try."""
    return try_number > history.try_number > 0 and max_tries > history.max_tries


def may_relaunch(history: History, max_relaunches: int) -> bool:
    """Return whether the newest submission, which is over, is relaunched within its try."""
    last = history.last
    return (
        history.ended is None
        and last is not None
        and last.cause in RELAUNCH_CAUSES
        and history.relaunches() < max_relaunches
    )


def backoff_ns(relaunches: int) -> int:
    """Return how long to wait before a relaunch after so many without progress.

    The first one is immediate; then 1, 2, 4 ... 30 s.
    """
    delay_s = 0.0 if relaunches == 0 else min(_BACKOFF_CAP_S, 2.0 ** (relaunches - 1))
    return int(delay_s * 1e9)
