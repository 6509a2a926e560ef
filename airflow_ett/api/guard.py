"""Who is let in to the job logs that the API holds, and what is answered where something fails.

These routes know tokens alone, no users and no cookies. They depend on nothing of Airflow's and
answer every failure themselves, whatever the app around them does. All answers bear a header, by
which a client tells them from those of a proxy, or of Airflow's own pages.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypeVar

from fastapi import Depends, HTTPException, Request, Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from airflow_ett import config
from airflow_ett.api import errors
from airflow_ett.api.bodies import Room
from airflow_ett.api.limits import Limiter
from airflow_ett.errors import ConfigurationError, EventLogError, TokenError
from airflow_ett.metric import configured as configured_components
from airflow_ett.storage.tokens import Grant, secrets_of, verify
from airflow_ett.storage.transport import HEADER
from airflow_ett.store import Store, open_store
from airflow_ett.store.append import Appender
from airflow_ett.store.examine import examine

_THREADS = 8
_PATIENCE_S = 10.0
_TURN_S = 10.0
"""Within that many seconds a request's work begins: later, whoever asked has given up, and may have
written something newer elsewhere."""

_CHECK_S = 10.0
_RETRY_S = 2
_T = TypeVar("_T")

Bearer = Annotated[
    HTTPAuthorizationCredentials | None,
    Depends(HTTPBearer(auto_error=False, description="The token of a job, as in `ETT_TOKEN`.")),
]


class Backend:
    """What the routes work with: a database, and the secret that signs the tokens."""

    def __init__(self, store: Store, secret: str) -> None:
        self.store = store
        self.secret = secret
        self.appender = Appender(store)


def configured() -> Backend:
    """Return what ``[ett] sql_alchemy_conn`` and ``api_secret`` name.

    Raises :class:`ConfigurationError` without a secret.
    """
    settings = config.load()
    secrets_of(settings.api_secret)
    store = open_store(
        settings.sql_alchemy_conn,
        patience_s=_PATIENCE_S,
        components=configured_components(settings),
    )
    return Backend(store, settings.api_secret)


class Desk:
    """Lets requests in by their tokens, at a bounded rate, and does their work in own threads.

    Airflow's threads are left to Airflow: none of them waits for the ETT database.
    """

    def __init__(self, make: Callable[[], Backend], limiter: Limiter) -> None:
        self._make = make
        self._limiter = limiter
        self._room = Room()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="ett-api")
        self._lock = threading.Lock()
        self._backend: Backend | None = None
        self._checked_at: float | None = None

    async def grant(self, bearer: Bearer) -> Grant:
        """Return what the request's token grants. A dependency."""
        backend = self._backend
        if backend is None:
            backend = await self._in_thread(self._open)
        if bearer is None:
            raise TokenError("There is no token: send `Authorization: Bearer <ETT_TOKEN>`.")
        grant = verify(backend.secret, bearer.credentials)
        wait_s = self._limiter.wait_s(_bearer(grant))
        if wait_s:
            raise HTTPException(
                429,
                f"Too many requests for job {grant.job}: try again in {wait_s} s.",
                headers={"Retry-After": str(wait_s)},
            )
        return grant

    async def grant_of_job(self, job: str, bearer: Bearer) -> Grant:
        """Return what the token grants for the job in the path. A dependency."""
        grant = await self.grant(bearer)
        if grant.job != job:
            problem = f"The token is for job {grant.job} alone."
            raise TokenError(problem, forbidden=True)
        return grant

    @contextlib.asynccontextmanager
    async def body(self, request: Request, most: int, grant: Grant) -> AsyncIterator[bytes]:
        """Hold a request's body, ``most`` bytes of it at most, while it is worked on."""
        bearer = _bearer(grant)
        async with self._room.body(request, most, bearer) as content:
            self._limiter.charge(bearer, len(content))
            yield content

    async def run(self, work: Callable[[Backend], _T]) -> _T:
        """Do work with the database, in a thread."""
        return await self._in_thread(lambda: work(self._ready()))

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        latest = time.monotonic() + _TURN_S

        def in_turn() -> _T:
            if time.monotonic() > latest:
                problem = "Too much is waiting for the ETT database: try again in a moment."
                raise HTTPException(503, problem, headers={"Retry-After": str(_RETRY_S)})
            return work()

        return await asyncio.get_running_loop().run_in_executor(self._threads, in_turn)

    def _open(self) -> Backend:
        with self._lock:
            backend = self._backend = self._backend or self._make()
        return backend

    def _ready(self) -> Backend:
        backend = self._open()
        if self._checked_at is None:
            examine(backend.store)
        elif time.monotonic() < self._checked_at + _CHECK_S:
            return backend
        else:
            # Of a database upgraded meanwhile this version would take a refusal for the event's.
            backend.store.check()
        self._checked_at = time.monotonic()
        return backend


def _bearer(grant: Grant) -> tuple[str, str]:
    """Return whose requests count together: a job's trainers take nothing from its launchers."""
    return grant.job, grant.role


class Route(APIRoute):
    """A route that answers failures with JSON that says what to do: ``{"detail": "..."}``."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, which raises nothing."""
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                response = await handle(request)
            except Exception as error:
                response = _answer(request, error)
            response.headers[HEADER] = "1"
            return response

        return answer


def _answer(request: Request, error: Exception) -> Response:
    if isinstance(error, TokenError):
        challenge = None if error.forbidden else {"WWW-Authenticate": "Bearer"}
        return errors.problem(403 if error.forbidden else 401, str(error), challenge)
    if isinstance(error, ConfigurationError):
        return errors.problem(503, str(error))
    if isinstance(error, EventLogError):
        return errors.problem(422, str(error))
    return errors.answer(error, request.url.path, _RETRY_S)
