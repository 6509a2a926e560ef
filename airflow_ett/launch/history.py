"""What the launchers of a job have done so far, folded from their events. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_ett.events import Cause, Event, JobState, Kind, Layer

MOST_HOSTS = 8
"""How many hosts are avoided: a job that lost more must not shut itself out of its cluster."""

UNKNOWN = "UNKNOWN"
"""TorchX's name of the state that says nothing; noted of an app its scheduler does not know."""


@dataclass(slots=True)
class Submission:
    """One app handed to a scheduler, or about to be: ``handle`` is None while only intended.

    ``app`` is its name, ``app_id`` its id where that follows from the name.

    ``handed_ns`` is when the handle was known: from there its start is waited for. ``started``: it
    was seen running. The scheduler has said ``raw`` since ``told_ns``, and ``reason`` why the app
    waits; ``unknown_since_ns`` is since when it has not known the app, or not answered.
    ``end_seen`` is False of one that was written off while it was still ending, or while its
    scheduler did not answer. ``proof`` is the evidence for its end, ``evidence`` that in a
    sentence; ``cursor`` is where the data position stood then, None where nobody knows. It is in
    its run ``restart``; ``former`` was the scheduler's last word of the run before, and the log has
    how the first ``runs_ended`` runs ended. ``hosts`` has, by run, on which host the scheduler had
    each of its nodes.
    """

    number: int
    app: str
    digest: str
    layer: Layer
    try_number: int
    intended_ns: int
    app_id: str | None = None
    handle: str | None = None
    handed_ns: int = 0
    resume_cursor: int = 0
    started: bool = False
    unknown_since_ns: int | None = None
    cancel_reason: Cause | None = None
    cancel_text: str | None = None
    ended: bool = False
    end_seen: bool = False
    ended_ns: int = 0
    cause: Cause | None = None
    evidence: str = ""
    proof: Mapping[str, Any] = field(default_factory=dict)
    cursor: int | None = None
    raw: str | None = None
    reason: str = ""
    restart: int = 0
    former: str | None = None
    runs_ended: int = 0
    told_ns: int = 0
    hosts: dict[int, tuple[str | None, ...]] = field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        """Return what intent and handle-over say of it."""
        return {
            "app": self.app,
            **({"app_id": self.app_id} if self.app_id else {}),
            "digest": self.digest,
            "layer": self.layer,
            "try": self.try_number,
            "resume_cursor": self.resume_cursor,
        }

    def note_end(self, event: Event) -> None:
        """Take the end over from an ``attempt_ended`` event."""
        cause = event.data.get("cause")
        self.ended, self.ended_ns = True, event.time_ns
        self.cause = Cause(cause) if cause else None
        self.proof = event.data.get("evidence") or {}
        self.evidence = str(self.proof.get("text", ""))
        self.end_seen = bool(self.proof.get("seen", True))
        self.cursor = event.data.get("cursor")

    def note_state(self, event: Event) -> None:
        """Take the scheduler's word over from a ``scheduler_state`` event."""
        data = event.data
        restart = int(data.get("restart") or 0)
        if restart > self.restart:
            self.former = self.raw
        self.raw, self.restart = data.get("raw"), restart
        self.reason = str(data.get("reason") or "")
        self.told_ns = event.time_ns
        if data.get("hosts"):
            self.hosts[restart] = tuple(data["hosts"])
        self.started = self.started or data.get("state") == "RUNNING"
        if data.get("state") != UNKNOWN:
            self.unknown_since_ns = None
        elif self.unknown_since_ns is None:
            self.unknown_since_ns = event.time_ns


@dataclass(slots=True)
class History:
    """A job's launcher-side state.

    ``unheard``: it ended well while its task failed, and no try has told Airflow since.
    """

    opened: dict[str, Any] | None = None
    opened_ns: int = 0
    submissions: list[Submission] = field(default_factory=list)
    try_number: int = 0
    max_tries: int = 0
    user_restart: bool = False
    ended: JobState | None = None
    unheard: bool = False

    @property
    def last(self) -> Submission | None:
        """The newest submission."""
        return self.submissions[-1] if self.submissions else None

    @property
    def live(self) -> Submission | None:
        """The newest submission, unless it is known to be over."""
        return None if self.last is None or self.last.ended else self.last

    @property
    def unfinished(self) -> Submission | None:
        """The newest submission, unless it was seen to be over."""
        return None if self.last is None or self.last.end_seen else self.last

    def relaunches(self) -> int:
        """How often the job was relaunched since a committed checkpoint last advanced."""
        count = 0
        for newer, older in zip(
            reversed(self.submissions), reversed(self.submissions[:-1]), strict=False
        ):
            if newer.layer is not Layer.RELAUNCH or newer.resume_cursor > older.resume_cursor:
                break
            count += 1
        return count

    def lost_hosts(self) -> list[str]:
        """On which hosts an attempt was lost to the infrastructure, the latest first, each once."""
        hosts = (
            str(submission.proof["host"])
            for submission in reversed(self.submissions)
            if submission.cause is Cause.INFRASTRUCTURE and submission.proof.get("host")
        )
        return list(dict.fromkeys(hosts))[:MOST_HOSTS]


def fold(events: Iterable[Event]) -> History:
    """Fold launcher events, in order of their epochs, into the job's history."""
    history = History()
    for event in events:
        apply(history, event)
    return history


def apply(history: History, event: Event) -> None:
    """Take one more event into the history."""
    data = event.data
    match event.kind:
        case Kind.JOB_OPENED:
            history.opened, history.opened_ns = dict(data), event.time_ns
        case Kind.CLAIMED:
            history.try_number = int(data["try"])
            history.max_tries = int(data["max_tries"])
            history.unheard = False
        case Kind.SUBMIT_INTENDED if data["submission"] in {s.number for s in history.submissions}:
            pass  # two owners logged the same intent: the one who made it and the one who found it
        case Kind.SUBMIT_INTENDED:
            history.user_restart = False
            history.submissions.append(
                Submission(
                    number=int(data["submission"]),
                    app=str(data["app"]),
                    app_id=data.get("app_id"),
                    digest=str(data["digest"]),
                    layer=Layer(data["layer"]),
                    try_number=int(data["try"]),
                    intended_ns=event.time_ns,
                    resume_cursor=int(data["resume_cursor"]),
                )
            )
        case Kind.USER_RESTART:
            history.user_restart = True
        case Kind.JOB_ENDED:
            history.ended = JobState(data["state"])
            history.unheard = bool(data.get("unheard"))
        case _:
            _apply_to_submission(history, event)


def _apply_to_submission(history: History, event: Event) -> None:
    number = event.attempt.submission if event.attempt else event.data.get("submission")
    submission = next((s for s in reversed(history.submissions) if s.number == number), None)
    if submission is None:
        return
    match event.kind:
        case Kind.SUBMITTED:
            submission.handle = str(event.data["handle"])
            submission.digest = str(event.data.get("digest", submission.digest))
            submission.handed_ns = int(event.data.get("handed_ns") or event.time_ns)
        case Kind.CANCEL_REQUESTED:
            submission.cancel_reason = Cause(event.data["reason"])
            submission.cancel_text = event.data.get("text")
        case Kind.SCHEDULER_STATE:
            submission.note_state(event)
        case Kind.ATTEMPT_ENDED:
            run = event.attempt.scheduler_restart if event.attempt else submission.restart
            if run < submission.restart:
                submission.runs_ended = run + 1
            else:
                submission.note_end(event)
