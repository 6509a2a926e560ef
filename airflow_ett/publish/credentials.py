"""The registry's credentials: out of one environment variable, and into no text.

``ETT_REGISTRY_CREDENTIALS`` holds a JSON object: ``{"login": "…", "password": "…"}`` or
``{"token": "…"}``. Arguments of a process can be seen by every user of its host; its environment
cannot. ``ModelPublishOperator`` fills it from an Airflow connection.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from airflow_ett.config import CREDENTIALS_VARIABLE
from airflow_ett.errors import ConfigurationError

_FIELDS = ("login", "password", "token")
_FORM = 'must be a JSON object: {"login": "…", "password": "…"} or {"token": "…"}'
_HIDDEN = "***"
_USERINFO = re.compile(r"//[^/\s]*@")


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """A login with its password, or a token, or nothing; a token goes first."""

    login: str = ""
    password: str = ""
    token: str = ""

    def redact(self, text: str) -> str:
        """Return a text without what is secret here, however a request would have sent it.

        A login in an address goes, too.
        """
        basic = base64.b64encode(f"{self.login}:{self.password}".encode()).decode()
        for secret in (self.token, self.password and basic, self.password):
            if secret:
                text = text.replace(secret, _HIDDEN)
        return _USERINFO.sub(f"//{_HIDDEN}@", text)


def read_credentials() -> Credentials:
    """Return what the environment holds; nothing where the variable is not set.

    Raises :class:`ConfigurationError`, which never quotes the variable's content.
    """
    content = os.environ.get(CREDENTIALS_VARIABLE, "")
    if not content:
        return Credentials()
    try:
        told = json.loads(content)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise ConfigurationError(
            CREDENTIALS_VARIABLE, _FORM
        ) from None  # the cause holds the content
    fields = {name: value for name, value in told.items() if value is not None}
    if not set(fields) <= set(_FIELDS) or not all(isinstance(v, str) for v in fields.values()):
        raise ConfigurationError(CREDENTIALS_VARIABLE, _FORM)
    token = fields.get("token", "")
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigurationError(
            CREDENTIALS_VARIABLE, "its token holds what no header may: blanks or lines"
        )
    return Credentials(**fields)


def without_credentials(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for a process that must not reach the registry: the user's code."""
    return {name: value for name, value in environ.items() if name != CREDENTIALS_VARIABLE}


def require_no_secrets(address: str) -> None:
    """Raise :class:`ConfigurationError` for a login or a query in an address: everybody sees it."""
    parts = urlsplit(address)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigurationError(
            "registry",
            "credentials do not belong into the address, nor does a query; give them in "
            f"{CREDENTIALS_VARIABLE}",
        )
