"""Requests to the API: with a token, within bounds of time, again where an answer got lost."""

from __future__ import annotations

import errno
import importlib
import random
import threading
import time
from collections.abc import Callable, Collection, Mapping
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_ett.errors import ConfigurationError
from airflow_ett.storage.tokens import read

if TYPE_CHECKING:
    from requests import PreparedRequest, Response

HEADER = "ETT-API"
"""What the API's own answers bear. Others are a proxy's, or of Airflow's pages."""

_CONNECT_S, _READ_S = 5.0, 30.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_RENEWAL_PAUSE_S = 60.0
_DETAIL_LENGTH = 500
_AGAIN = frozenset({408, 429, 500, 502, 503, 504})
_DENIED = frozenset({401, 403})


class Transport:
    """Sends requests below one address. Threads may share it.

    All requests may be repeated. ``token`` is asked for at each of them; what it returns is renewed
    here once half of its life is over. ``patience_s`` bounds for how long a request is repeated.
    Redirects are not followed: a token goes nowhere else.
    """

    def __init__(
        self,
        base: str,
        token: Callable[[], str],
        *,
        patience_s: float,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.base = base
        self._tokens = Tokens(token, self._renewed)
        self._patience_s = patience_s
        # Who is in a hurry does not sit out a server that has taken a request and is silent.
        self._timeouts = min(_CONNECT_S, patience_s), min(_READ_S, 3 * patience_s)
        self._sleep = sleep
        self._requests = _requests()
        self._session = self._requests.Session()
        # Threads share the session, and its jar could not stand that.
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    def ask(
        self,
        method: str,
        path: str,
        *,
        accept: Collection[int],
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Return the API's answer, whose status is in ``accept``.

        Raises ``PermissionError`` where the token is refused, ``OSError`` where the request is, or
        where no such answer came within the patience.
        """
        sent = {"params": params, "data": content, "headers": headers}
        end = time.monotonic() + self._patience_s
        pause = _FIRST_PAUSE_S
        while True:
            wait = pause * random.uniform(0.5, 1.5)
            try:
                answer = self._send(method, path, **sent)
            except self._requests.RequestException as error:
                if not _is_passing(self._requests, error):
                    raise self._failure(_told(error)) from error
                problem = _told(error)
            else:
                if HEADER in answer.headers and answer.status_code in accept:
                    return answer
                problem = self._problem(answer)
                wait = max(wait, _retry_after(answer))
            if time.monotonic() + wait > end:
                raise self._failure(problem)
            self._sleep(wait)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _send(self, method: str, path: str, **sent: Any) -> Response:
        token = self._tokens.current()
        answer = self._send_with(token, method, path, **sent)
        if answer.status_code == 401 and (other := self._tokens.instead_of(token)):
            answer = self._send_with(other, method, path, **sent)
        return answer

    def _send_with(self, token: str, method: str, path: str, **sent: Any) -> Response:
        def sign(request: PreparedRequest) -> PreparedRequest:
            request.headers["Authorization"] = f"Bearer {token}"
            return request

        # As auth, and not as a header: what ~/.netrc says of the host would take its place.
        answer: Response = self._session.request(
            method,
            self.base + path,
            auth=sign,
            allow_redirects=False,
            timeout=self._timeouts,
            **sent,
        )
        return answer

    def _renewed(self, token: str) -> str | None:
        """Return a token for the given one, None where there is none now."""
        try:
            answer = self._send_with(token, "POST", "/tokens/renew")
            if answer.status_code == 200 and HEADER in answer.headers:
                return str(answer.json()["token"])
        except (self._requests.RequestException, ValueError, KeyError, TypeError):
            pass
        return None

    def _problem(self, answer: Response) -> str:
        """Return what an answer says that may be another one later; raise what it says for good."""
        status, detail = answer.status_code, _detail(answer)
        if HEADER not in answer.headers and status not in _AGAIN:
            place = urlsplit(answer.headers.get("Location", ""))
            to = f" and points to {place.hostname}" if place.hostname else ""
            raise self._failure(
                f"something answers there with status {status}{to}, but not this API. Check "
                "[ett] api_url, and that the API server has the same airflow-ett"
            )
        if status in _DENIED:
            raise PermissionError(errno.EACCES, f"The ETT API at {self.base} refuses: {detail}")
        if status not in _AGAIN:
            number = errno.EFBIG if status == 413 else errno.EINVAL
            text = f"The ETT API at {self.base} takes no such request ({status}): {detail}"
            raise OSError(number, text)
        return f"status {status}: {detail}"

    def _failure(self, problem: str) -> OSError:
        return OSError(f"The ETT API at {self.base} cannot be used: {problem}.")


class Tokens:
    """The token that is sent: as it is told, or renewed since. Threads may share it."""

    def __init__(self, told: Callable[[], str], renew: Callable[[str], str | None]) -> None:
        self._source = told
        self._renew = renew
        self._lock = threading.Lock()
        self._told = self._current = ""
        self._due = 0.0

    def current(self) -> str:
        """Return the token to send; renew it first where half of its life is over.

        Raises ``PermissionError`` where there is none.
        """
        told = self._source()
        if read(told) is None:
            lack = "there is no token" if not told else "what is given is no token"
            raise PermissionError(
                errno.EACCES, f"The job's log in the API cannot be used: {lack} (ETT_TOKEN)."
            )
        with self._lock:
            if told != self._told:
                self._told = self._current = told
                self._due = 0.0
            token = self._current
            grant = read(token)
            now = time.monotonic()
            if grant is None or not grant.is_old(time.time()) or now < self._due:
                return token
            self._due = now + _RENEWAL_PAUSE_S  # this thread renews, others go on meanwhile
        renewed = self._renew(token)
        if renewed is None or read(renewed) is None:
            return token
        with self._lock:
            if self._told == told:
                self._current = renewed
        return renewed

    def instead_of(self, token: str) -> str | None:
        """Return another token for one that was refused, None where there is none.

        That is the one renewed meanwhile, or the one that was told.
        """
        with self._lock:
            if token == self._current:
                self._current = self._told
            return None if token == self._current else self._current


def _requests() -> Any:
    try:
        return importlib.import_module("requests")
    except ImportError as error:
        raise ConfigurationError(
            "[ett] api_url", "needs the package requests: install `airflow-ett[http]`"
        ) from error


def _is_passing(requests: Any, error: Exception) -> bool:
    """Return whether the same request may succeed later."""
    passing = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
    return isinstance(error, passing) and not isinstance(error, requests.exceptions.SSLError)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_DETAIL_LENGTH]


def _detail(answer: Response) -> str:
    try:
        return str(answer.json()["detail"])[:_DETAIL_LENGTH]
    except (ValueError, KeyError, TypeError):
        return f"no details, {len(answer.content)} bytes"


def _retry_after(answer: Response) -> float:
    told = answer.headers.get("Retry-After", "")
    return float(told) if told.isascii() and told.isdecimal() else 0.0
