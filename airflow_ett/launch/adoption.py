"""Adopt, submit or restart: what a process that has just claimed a job does first. A pure table.

=====================================  ==========================================  ==============
history                                sign that a user wants it anew              action
=====================================  ==========================================  ==============
no submission                          –                                           SUBMIT
over, with success                     none                                        REPORT
over, with success, of other request   ``user_restart``, or the run is new         SUBMIT
over, in a former try                  –                                           SUBMIT
over, in this try, to be relaunched    –                                           SUBMIT, if due
over, in this try, for good            none                                        REPORT
over, in this try, for good            ``user_restart``, or the run is new         SUBMIT
intended, handle unknown               none                                        FIND
live, handle known                     none                                        ADOPT
live, of another request               none                                        ADOPT
live, of the same request              the run is new                              ADOPT, FIND
live, cancel already requested         –                                           AWAIT_END
intended or live                       ``user_restart``, or max_tries has grown    RESTART
intended or live, of another request   the run is new                              RESTART
=====================================  ==========================================  ==============

A success that Airflow has not heard of is reported by whichever try comes next. "In this try"
happens when a trigger starts again: a triggerer died after the end was noted and before Airflow
knew. ``FIND`` looks the app up by its deterministic name and submits it under the same name when it
is not there; ``RESTART`` cancels once, waits until the app is over and submits; ``AWAIT_END`` waits
and submits. A clear is recorded by the path that killed the old try (``user_restart``); Airflow
raises ``max_tries`` by a clear and never by a retry: the second sign.

**Another request** is one with another digest. A DAG run that was deleted and made again under the
same run id counts its tries anew (:func:`made_again`). It adopts only what it would have submitted;
anything else is cancelled, since the run that wanted it is gone: to refuse would leave an orphan
that holds its accelerators for nobody, and a run that can only fail. A *retry* whose DAG file was
edited meanwhile adopts all the same, and says so: arguments may differ from try to try without
anybody's wish (a date, a token), and the death of a worker must never cost a training. Clearing the
task is how a user asks for the new arguments; every later submission has them anyway.
"""

from __future__ import annotations

from enum import StrEnum

from airflow_ett.events import RELAUNCH_CAUSES, Cause, Layer
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


def decide(
    history: History,
    *,
    try_number: int,
    max_tries: int,
    digest: str,
    new_run: bool = False,
    max_relaunches: int = 0,
) -> Action:
    """Return the first action of a try; ``history`` does not contain its own claim yet.

    ``digest`` is of what this try would submit, ``new_run`` as :func:`made_again` says.
    """
    last, live = history.last, history.live
    if last is None:
        return Action.SUBMIT
    other = last.digest != digest
    anew = new_run or history.user_restart
    if live is None:
        if last.cause is None:
            return Action.SUBMIT if other and anew else Action.REPORT
        over = last.try_number == try_number and not may_relaunch(history, max_relaunches)
        return Action.REPORT if over and not anew else Action.SUBMIT
    if live.cancel_reason is not None:
        return Action.AWAIT_END
    if history.user_restart or cleared(history, try_number=try_number, max_tries=max_tries):
        return Action.RESTART
    if new_run and other:
        return Action.RESTART
    return Action.FIND if live.handle is None else Action.ADOPT


def made_again(history: History, *, try_number: int, mode: str) -> bool:
    """Return whether this try is of a DAG run that was deleted and made again.

    The first task process of a try claims in mode ``task``, once, and tries count up; whoever goes
    on with the same try claims in another mode.
    """
    return mode == "task" and 0 < try_number <= history.try_number


def cleared(history: History, *, try_number: int, max_tries: int) -> bool:
    """Return whether the user cleared the task between the last claim and this try."""
    return try_number > history.try_number > 0 and max_tries > history.max_tries


def may_relaunch(history: History, max_relaunches: int) -> bool:
    """Return whether the newest submission, which is over, is relaunched within its try.

    A relaunch that the scheduler refused is followed by another, as one that was preempted.
    """
    last = history.last
    if history.ended is not None or last is None:
        return False
    refused = last.cause is Cause.LAUNCH and last.layer is Layer.RELAUNCH
    return (last.cause in RELAUNCH_CAUSES or refused) and history.relaunches() < max_relaunches


def rested(history: History, now_ns: int) -> bool:
    """Return whether the newest submission ended so long ago that its relaunch is due.

    An end that lies ahead tells of a clock that was put back, and is not waited for.
    """
    last = history.last
    return last is None or not 0 <= now_ns - last.ended_ns < backoff_ns(history.relaunches())


def backoff_ns(relaunches: int) -> int:
    """Return how long to wait before a relaunch after so many without progress.

    The first one is immediate; then 1, 2, 4 ... 30 s.
    """
    delay_s = 0.0 if relaunches == 0 else min(_BACKOFF_CAP_S, 2.0 ** (relaunches - 1))
    return int(delay_s * 1e9)
