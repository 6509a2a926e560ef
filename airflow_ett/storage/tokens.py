"""Tokens for the API: which job's log their bearer may use, as whom, until when.

::

    ett1.<job>.<role>.<issued>.<expires>.<HMAC-SHA256 of all that, base64url>

Times are Unix seconds. A token can be read by everybody and made only by who knows the secret. No
message tells of a secret or of a token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from enum import StrEnum
from typing import NamedTuple

from airflow_ett.errors import ConfigurationError, TokenError

_VERSION = "ett1"
_SHORTEST = 32
_FORM = re.compile(
    r"(?P<signed>ett1\.(?P<job>[0-9a-f]{20})\.(?P<role>launcher|trainer)"
    r"\.(?P<issued>[0-9]{1,12})\.(?P<expires>[0-9]{1,12}))\.(?P<mac>[A-Za-z0-9_-]{43})",
    re.ASCII,
)
_JOB = re.compile("[0-9a-f]{20}")


class Role(StrEnum):
    """As whom a token's bearer comes: a launcher may use the whole place, a trainer its part."""

    LAUNCHER = "launcher"
    TRAINER = "trainer"


class Grant(NamedTuple):
    """What a token says. Times are Unix seconds."""

    job: str
    role: Role
    issued: int
    expires: int

    @property
    def life_s(self) -> int:
        """For how long the token was made."""
        return self.expires - self.issued

    def is_old(self, now_s: float) -> bool:
        """Return whether half of its life is over, so that another one is due."""
        return now_s >= self.issued + self.life_s / 2


def issue(
    secret: str, job_id: str, role: str, expires_s: float, *, now_s: float | None = None
) -> str:
    """Return a token for a job that expires in ``expires_s`` seconds.

    ``secret`` is ``[ett] api_secret``: of several, the first signs. Raises
    :class:`ConfigurationError` where there is none or a short one, ``ValueError`` for what is no
    job's id.
    """
    if not is_job(job_id):
        raise ValueError(f"{job_id!r} is no job's id: those are 20 hexadecimal digits")
    issued = int(time.time() if now_s is None else now_s)
    expires = issued + max(1, round(expires_s))
    signed = f"{_VERSION}.{job_id}.{Role(role)}.{issued}.{expires}"
    return f"{signed}.{_mac(secrets_of(secret)[0], signed)}"


def verify(
    secret: str,
    token: str,
    *,
    job_id: str | None = None,
    role: str | None = None,
    now_s: float | None = None,
) -> Grant:
    """Return what a token grants: this job, if named, and this role, if named.

    Raises :class:`TokenError` that says what is wrong with it, :class:`ConfigurationError` as
    :func:`issue` does.
    """
    known = secrets_of(secret)
    form = _FORM.fullmatch(token)
    genuine = [_mac(one, form["signed"]) for one in known] if form else []
    if not form or not any(hmac.compare_digest(mac, form["mac"]) for mac in genuine):
        raise TokenError(
            "The token is forged or was signed with another secret: launchers and API servers "
            "need the same [ett] api_secret."
        )
    grant = _grant(form)
    if grant.expires <= (time.time() if now_s is None else now_s):
        raise TokenError(f"The token of job {grant.job} has expired; its bearer needs a new one.")
    if job_id is not None and grant.job != job_id:
        raise TokenError(f"The token is for job {grant.job}, not for {job_id}.", forbidden=True)
    if role is not None and grant.role != role:
        problem = f"The token of job {grant.job} is a {grant.role}'s; this needs a {role}'s."
        raise TokenError(problem, forbidden=True)
    return grant


def read(token: str) -> Grant | None:
    """Return what a token says, unverified, None where it is none."""
    form = _FORM.fullmatch(token)
    return _grant(form) if form else None


def is_job(text: str) -> bool:
    """Return whether a text is a job's id, as :class:`airflow_ett.events.JobKey` makes it."""
    return _JOB.fullmatch(text) is not None


def secrets_of(option: str) -> list[str]:
    """Return the secrets in ``[ett] api_secret``.

    Raises :class:`ConfigurationError` where there is none, or one that could be guessed.
    """
    known = [part for part in map(str.strip, option.split(",")) if part]
    if not known:
        raise ConfigurationError(
            "[ett] api_secret",
            "is not set, but the API holds job logs only with it. Set the same one for launchers "
            "and API servers, such as the output of `openssl rand -hex 32`.",
        )
    if any(len(secret) < _SHORTEST for secret in known):
        problem = f"must have {_SHORTEST} characters or more: a bearer could guess a shorter one"
        raise ConfigurationError("[ett] api_secret", problem)
    return known


def _grant(form: re.Match[str]) -> Grant:
    return Grant(form["job"], Role(form["role"]), int(form["issued"]), int(form["expires"]))


def _mac(secret: str, signed: str) -> str:
    digest = hmac.digest(secret.encode(), signed.encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
