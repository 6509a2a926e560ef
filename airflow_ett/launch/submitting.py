"""Hand submissions to a scheduler, each exactly once whoever dies in between.

The intent is in the log before the scheduler is asked, the handle after it; an app whose handle is
unknown is found by its deterministic name.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from airflow_ett.config import JOB_VARIABLE, TOKEN_VARIABLE
from airflow_ett.errors import Fenced, LaunchError
from airflow_ett.events import Cause, JobContext, JobKey, Layer, slug
from airflow_ett.launch.aftermath import committed_cursor
from airflow_ett.launch.history import Submission, fold
from airflow_ett.launch.ledger import Ledger
from airflow_ett.launch.names import app_name
from airflow_ett.launch.opening import OpenJob
from airflow_ett.launch.request import Request
from airflow_ett.launch.verdict import Verdict
from airflow_ett.storage import is_folder

if TYPE_CHECKING:
    from airflow_ett.launch.gateway import Gateway, Prepared

log = logging.getLogger(__name__)


class Submitter:
    """Submits one job's request under one claim."""

    def __init__(self, job: OpenJob, ledger: Ledger, request: Request, gateway: Gateway) -> None:
        self._job = job
        self._ledger = ledger
        self._request = request
        self._gateway = gateway
        self.digest = request.digest()

    def open(self) -> None:
        """Write the job's first word.

        Raises :class:`ConfigurationError` when the request cannot be submitted as it is.
        """
        key = self._ledger.log.key
        prepared = self._prepare(1)
        self._ledger.opened(
            {
                "key": {name: getattr(key, name) for name in key.__slots__},
                "scheduler": self._request.scheduler,
                "component": self._request.component,
                "accelerators": self._gateway.accelerators(prepared),
                "inherit": dict(self._job.inherit) if self._job.inherit else None,
            }
        )

    def submit(self, layer: Layer) -> None:
        """Make the next submission. Raises :class:`LaunchError` when the scheduler refuses."""
        ledger, last = self._ledger, self._ledger.history.last
        number = last.number + 1 if last else 1
        cursor = committed_cursor(self._job, last)
        prepared = self._prepare(number, cursor)
        app = app_name(ledger.log.key, number, ledger.history.opened_ns)
        submission = Submission(
            number=number,
            app=app,
            app_id=self._gateway.app_id(prepared, app),
            digest=self.digest,
            layer=layer,
            try_number=ledger.claim.try_number,
            intended_ns=0,
            resume_cursor=cursor,
        )
        self._hand_over(ledger.intended(submission), prepared)

    def find_or_submit(self, submission: Submission) -> None:
        """See to it that the scheduler has an app that was intended."""
        if not self.reached_scheduler(submission):
            prepared = self._prepare(submission.number, submission.resume_cursor)
            self._hand_over(submission, prepared)

    def reached_scheduler(self, submission: Submission) -> bool:
        """Return whether the scheduler has the app, looking it up by name where that is unknown.

        Raises :class:`LaunchError` when it cannot be asked.
        """
        if submission.handle is None:
            handle = self._gateway.find(submission.app, self._request.scheduler, submission.app_id)
            if handle is None:
                return False
            self._ledger.handed_over(submission, handle)
        return True

    def begin_over(self, intent: Submission, layer: Layer) -> None:
        """Start over from an intent that never reached the scheduler: nothing ran."""
        if intent.cancel_reason is None:
            self.find_or_submit(intent)
            return
        text = "It was cancelled before the scheduler had it."
        evidence = {"source": "launcher", "text": text}
        self._ledger.attempt_ended(intent, Verdict(intent.cancel_reason, evidence))
        self.submit(layer)

    def _prepare(self, submission: int, resume_cursor: int = 0) -> Prepared:
        request, inherit = self._request, self._job.inherit or {}
        prepared = self._gateway.prepare(
            component=request.component,
            component_args=list(request.component_args),
            scheduler=request.scheduler,
            cfg=dict(request.cfg),
            env=dict(request.env),
            resource=request.resource,
            avoid=self._ledger.history.lost_hosts(),
        )
        key, place = self._ledger.log.key, self._ledger.log.place
        shared = is_folder(place)
        context = JobContext(
            key=key,
            submission=submission,
            run_dir=place if shared else key.path.as_posix(),
            log="" if shared else place,
            checkpoints=self._job.checkpoints,
            epoch=self._ledger.claim.epoch,
            resume=request.resume,
            inherit=inherit.get("checkpoint"),
            init_from=request.init_from,
            hwm=int(inherit.get("hwm") or 0),
            grace_s=prepared.grace_s,
            resume_cursor=resume_cursor,
            failures_per_hour=request.failures_per_hour,
            cache=_cache(request.cache_root, key),
        )
        secret = {TOKEN_VARIABLE: self._job.token()} if self._job.token else {}
        prepared.tell({JOB_VARIABLE: context.encode(), **secret})
        return prepared

    def _hand_over(self, submission: Submission, prepared: Prepared) -> None:
        """Give the app to the scheduler; a refusal ends the attempt and is raised.

        An answer that was lost is no refusal: while the scheduler cannot be asked, either, the
        intent stays, and whoever comes next looks the app up.
        """
        self._ledger.check()
        submission.digest = self.digest
        if less := prepared.grace_shortfall:
            log.warning("Job %s, submission %d: %s", self._ledger.log.key, submission.number, less)
        try:
            handle = self._gateway.submit(prepared, submission.app)
        except LaunchError as error:
            if self.reached_scheduler(submission):
                return
            self._ledger.check()
            evidence = {"source": "scheduler", "text": str(error)}
            self._ledger.attempt_ended(submission, Verdict(Cause.LAUNCH, evidence))
            raise
        self._ledger.handed_over(submission, handle)
        try:
            self._ledger.check()
        except Fenced:
            with contextlib.suppress(LaunchError):
                self._disown(submission.number, handle)
            raise

    def _disown(self, number: int, handle: str) -> None:
        """End an app that came about after another had claimed the job, unless it adopts the app.

        It does not when it has asked for the end, or has the app under another handle.
        """
        history = fold(self._ledger.log.launcher_events())
        made = next(s for s in history.submissions if s.number == number)
        if made.ended or made.cancel_reason is not None or made.handle != handle:
            log.warning("Job %s: %s came too late and is cancelled", self._ledger.log.key, handle)
            self._gateway.cancel(handle)


def _cache(root: str, key: JobKey) -> str:
    """Return where the trainings of a DAG keep what later ones of it may use, '' for nowhere.

    What is kept there is executed: no DAG uses what another one's training has left.
    """
    return f"{root}/{slug(key.deployment)}/{slug(key.dag_id)}" if root else ""
