"""Failures as JSON: ``detail`` says what happened and what to do, ``reference`` finds the log."""

import logging
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from airflow_ett.errors import StoreDamaged, StoreError, StoreMismatch

_log = logging.getLogger(__name__)
_RETRY_S = 10


class Denied(Exception):
    """The signed-in user may not read the runs of this Dag, whether or not it exists."""

    def __init__(self, dag_id: str, user: str) -> None:
        super().__init__(f"{user} may not read the runs of {dag_id}")
        self.dag_id = dag_id
        self.user = user


def answer(error: Exception, path: str, retry_s: int = _RETRY_S) -> Response:
    """Return the answer to a request for ``path`` that failed so.

    While the database is away it may be asked again in ``retry_s`` seconds.
    """
    if isinstance(error, Denied):
        return problem(403, f"You may not read the runs of the DAG {error.dag_id!r}.")
    if isinstance(error, RequestValidationError):
        return problem(422, _words(error.errors()))
    if isinstance(error, HTTPException):
        return problem(error.status_code, str(error.detail), error.headers)
    reference = logged(error, path)
    if isinstance(error, StoreMismatch | StoreDamaged):
        text = "The ETT database is not as this version of airflow-ett needs it. "
        text += "Run `airflow-ett db check`, which says what to do."
        return problem(503, text, {"Retry-After": str(retry_s)}, reference)
    if isinstance(error, StoreError):
        text = "The ETT database does not answer. Nothing is lost: ask again in a moment."
        return problem(503, text, {"Retry-After": str(retry_s)}, reference)
    return problem(500, "This failed. The reason is in the api-server's log.", None, reference)


def problem(
    status: int,
    detail: str,
    headers: Mapping[str, str] | None = None,
    reference: str | None = None,
) -> Response:
    """Return an answer in the one form that all failures have."""
    body = {"detail": detail} | ({"reference": reference} if reference else {})
    return JSONResponse(body, status, headers)


def logged(error: Exception, path: str) -> str:
    """Log a failure of ours and return the reference under which it is found."""
    reference = secrets.token_hex(4)
    _log.error("ETT%% %r, reference %s: %s", path, reference, error, exc_info=error)
    return reference


def _words(errors: Iterable[Mapping[str, Any]]) -> str:
    """Return what is wrong with a request, without repeating what it said."""
    return "; ".join(
        f"{'.'.join(str(part) for part in error['loc'])}: {error['msg']}" for error in errors
    )
