"""Requests to a registry's service: signed, within bounds of time, again where they may pass.

Every request here may be repeated: the protocol is made so (see :mod:`.http`).
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

from airflow_ett.errors import ConfigurationError, PublishError
from airflow_ett.publish.credentials import Credentials

if TYPE_CHECKING:
    from requests import PreparedRequest, Response


class Answer(NamedTuple):
    """What a service has answered, read to its end."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


TRIES = 7
"""A service that restarts within a minute is waited for."""

TIMEOUTS_S = (10.0, 60.0)
"""To connect, and between one byte of an answer and the next."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_DETAIL_LENGTH = 300
_LONGEST_ANSWER = 16 << 20
_PIECE = 1 << 16
_PASSING = frozenset({408, 429, 500, 502, 503, 504})
_DENIED = frozenset({401, 403})

_log = logging.getLogger(__name__)


class Client:
    """Sends requests below one address; a redirect is not followed: credentials stay there.

    Raises :class:`ConfigurationError` where the package ``requests`` is missing.
    """

    def __init__(
        self,
        base: str,
        credentials: Credentials,
        *,
        sleep: Callable[[float], None] = time.sleep,
        timeouts_s: tuple[float, float] = TIMEOUTS_S,
    ) -> None:
        try:
            import requests
        except ImportError as error:
            raise ConfigurationError(
                "registry", "needs the package requests: install `airflow-ett[http]`"
            ) from error
        self.base = base
        self._credentials = credentials
        self._sleep = sleep
        self._timeouts_s = timeouts_s
        self._requests = requests
        self._session = requests.Session()

    def ask(
        self,
        method: str,
        path: str,
        *,
        accept: Collection[int],
        content: bytes | Path = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Return the answer, whose status is in ``accept``.

        ``content`` may be a file: it is streamed. Raises :class:`PublishError`.
        """
        for number in range(1, TRIES + 1):
            wait = min(_FIRST_PAUSE_S * 2 ** (number - 1), _LONGEST_PAUSE_S)
            wait *= random.uniform(0.5, 1.0)
            try:
                answer = self._send(method, path, content, headers)
            # A ValueError is of a Location that is no address, or of an endless answer.
            except (self._requests.RequestException, ValueError) as error:
                problem = f"cannot be reached: {type(error).__name__}: {error}"
                if not self._may_pass(error):
                    self.fail(path, problem, "check the registry's address")
            else:
                if answer.status_code in accept:
                    return answer
                problem = self._problem(path, answer)
                wait = max(wait, min(_retry_after(answer), _LONGEST_PAUSE_S))
            if number < TRIES:
                _log.warning("%s", self._told(path, f"{problem}; asking again in {wait:.0f} s"))
                self._sleep(wait)
        self.fail(path, f"{problem}; asked {TRIES} times", "publish again once it answers")

    def object_of(self, path: str, answer: Answer) -> dict[str, Any]:
        """Return the JSON object of an answer; raise :class:`PublishError` where it is none."""
        try:
            found = json.loads(answer.content)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self.garbage(path, answer)
        return found

    def garbage(self, path: str, answer: Answer) -> NoReturn:
        """Raise :class:`PublishError` for an answer that this protocol does not know."""
        kind = answer.headers.get("Content-Type", "no content type")
        problem = f"answers what no registry does: status {answer.status_code}, {kind}"
        self.fail(path, f"{problem}, {len(answer.content)} bytes", "check the registry's address")

    def fail(self, path: str, problem: str, advice: str) -> NoReturn:
        """Raise :class:`PublishError` that names the address, in one line and without secrets."""
        raise PublishError(self._told(path, f"{problem}; {advice}"))

    def _send(
        self, method: str, path: str, content: bytes | Path, headers: Mapping[str, str] | None
    ) -> Answer:
        def send(data: Any) -> Answer:
            with self._session.request(
                method,
                self.base + path,
                data=data,
                headers=headers,
                auth=self._sign,
                allow_redirects=False,
                timeout=self._timeouts_s,
                stream=True,
            ) as answer:
                return Answer(answer.status_code, answer.headers, _content(answer))

        if isinstance(content, bytes):
            return send(content)
        with content.open("rb") as file:
            return send(file)

    def _sign(self, request: PreparedRequest) -> PreparedRequest:
        """Add the credentials, in place of what ``~/.netrc`` would have."""
        if self._credentials.token:
            request.headers["Authorization"] = f"Bearer {self._credentials.token}"
        elif self._credentials.login:
            login, password = self._credentials.login, self._credentials.password
            self._requests.auth.HTTPBasicAuth(login.encode(), password.encode())(request)
        return request

    def _may_pass(self, error: Exception) -> bool:
        kinds = self._requests.exceptions
        passing = (kinds.ConnectionError, kinds.Timeout, kinds.ChunkedEncodingError)
        return isinstance(error, passing) and not isinstance(error, kinds.SSLError)

    def _problem(self, path: str, answer: Answer) -> str:
        """Return what an answer says that may be another one later; raise what it says for good."""
        status, detail = answer.status_code, self._detail(answer)
        if status in _DENIED:
            advice = "check the login or token of the registry's connection, and its rights there"
            self.fail(path, f"refuses the credentials ({status}: {detail})", advice)
        if status not in _PASSING:
            place = urlsplit(answer.headers.get("Location", "")).netloc
            to = f", and points to {place}" if place else ""
            self.fail(path, f"answers {status}: {detail}{to}", "check the registry's address")
        return f"answers {status}: {detail}"

    def _detail(self, answer: Answer) -> str:
        try:
            return self._credentials.redact(str(json.loads(answer.content)["detail"]))[
                :_DETAIL_LENGTH
            ]
        except (ValueError, KeyError, TypeError, RecursionError):
            return f"no details, {len(answer.content)} bytes"

    def _told(self, path: str, text: str) -> str:
        told = self._credentials.redact(f"registry {self.base}{path} {text}")
        return " ".join(told.split())


def _content(answer: Response) -> bytes:
    """Return an answer's body; raise ``ValueError`` for one that no registry sends."""
    content = bytearray()
    for piece in answer.iter_content(_PIECE):
        content += piece
        if len(content) > _LONGEST_ANSWER:
            raise ValueError(f"its answer has more than {_LONGEST_ANSWER} bytes")
    return bytes(content)


def _retry_after(answer: Answer) -> float:
    told = answer.headers.get("Retry-After", "")
    return float(told) if told.isascii() and told.isdecimal() else 0.0
