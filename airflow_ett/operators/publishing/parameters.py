"""Checks of the publishing operator's parameters, by the parameter's name, as early as can be."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow_ett import config
from airflow_ett.errors import ConfigurationError
from airflow_ett.launch.preparation import late, validate_static
from airflow_ett.launch.publishing import COMPONENT
from airflow_ett.publish.request import (
    check_function,
    check_name,
    check_tolerance,
    check_transforms,
)

NEWER, ALWAYS = "newer", "always"

_VALIDATE = ("golden", "tolerance")

_JOBS = ("cfg", "resource", "image")
"""What only an app of a scheduler's can be told."""


def check(given: Mapping[str, Any], *, rendered: bool) -> None:
    """Raise :class:`ConfigurationError` unless the parameters are right, and fit each other.

    ``given`` has all of them by name. Before they are ``rendered`` those that are templates, or
    another task's output, pass.
    """
    _check_together(given)
    for parameter, problem in _CHECKS.items():
        value = given[parameter]
        if rendered or not late(value):
            problem(parameter, value)
    if given["scheduler"] is not None:
        validate_static(COMPONENT, given["scheduler"], given["cfg"], given["resource"])


def _check_together(given: Mapping[str, Any]) -> None:
    """Check what parameters say of each other, whatever their values turn out to be."""
    follows = given["publish_every"] is not None
    if follows and given["checkpoint"] is not None:
        problem = "a running training's newest ones are published (publish_every): name none"
        raise ConfigurationError("checkpoint", problem)
    if not follows and given["checkpoint"] is None:
        raise ConfigurationError("checkpoint", "must be a training task's output, or a URI")
    if follows and given["version"] is not None:
        problem = "each checkpoint of publish_every gets its own: name none"
        raise ConfigurationError("version", problem)
    if given["scheduler"] is None:
        for parameter in _JOBS:
            if given[parameter] is not None:
                raise ConfigurationError(parameter, "is for an app: name its scheduler, too")
        return
    if config.load().api_url:
        problem = (
            "an app's result needs a run root that nodes and workers share; [ett] api_url is set"
        )
        raise ConfigurationError("scheduler", f"{problem}. Publish on a worker (without scheduler)")
    if given["registry_conn_id"] is not None:
        raise ConfigurationError(
            "registry_conn_id",
            "a scheduler would keep the credentials where others may read them. Publish on a "
            "worker (without scheduler), or give the app's environment ETT_REGISTRY_CREDENTIALS "
            "on the cluster itself: a Kubernetes secret, an image, a node's profile",
        )
    if given["python"] is not None:
        problem = "is for a publisher on a worker; an app has its image's (image)"
        raise ConfigurationError("python", problem)


def _text(parameter: str, value: Any) -> None:
    if not isinstance(value, str) or not value:
        raise ConfigurationError(parameter, f"must be a text that is not empty, not {value!r}")


def _maybe(check: Callable[[str, Any], None]) -> Callable[[str, Any], None]:
    def checked(parameter: str, value: Any) -> None:
        if value is not None:
            check(parameter, value)

    return checked


def _source(parameter: str, value: Any) -> None:
    """Check a checkpoint: a URI, or what a training task returns."""
    found = value.get("checkpoint") if isinstance(value, Mapping) else value
    if not isinstance(found, str) or not found:
        raise ConfigurationError(parameter, f"names no checkpoint: {value!r}")


def _function(parameter: str, value: Any) -> None:
    _text(parameter, value)
    check_function(parameter, value)


def _name(parameter: str, value: Any) -> None:
    _text(parameter, value)
    check_name(parameter, value)


def _transforms(parameter: str, value: Any) -> None:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ConfigurationError(parameter, f"must be a list of names, not {value!r}")
    check_transforms(tuple(value))


def _validate(parameter: str, value: Any) -> None:
    if not isinstance(value, Mapping) or not set(value) <= set(_VALIDATE):
        names = " and ".join(_VALIDATE)
        raise ConfigurationError(parameter, f"must be a dictionary of {names}, not {value!r}")
    if value.get("golden") is not None and not late(value["golden"]):
        _function(parameter, value["golden"])
    if not late(value.get("tolerance")):
        tolerance(value)


def tolerance(validate: Mapping[str, Any]) -> float | None:
    """Return the tolerance among the values of ``validate``, which a template may have made.

    Raises :class:`ConfigurationError` unless it is a number, 0 or more.
    """
    value: Any = validate.get("tolerance")
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = float(value)
    check_tolerance(value)
    return None if value is None else float(value)


def _latest(parameter: str, value: Any) -> None:
    if value not in (NEWER, ALWAYS):
        raise ConfigurationError(parameter, f"is {NEWER!r} or {ALWAYS!r}, not {value!r}")


_CHECKS: Mapping[str, Callable[[str, Any], None]] = {
    "checkpoint": _maybe(_source),
    "model": _function,
    "registry": _text,
    "name": _name,
    "version": _maybe(_name),
    "transforms": _transforms,
    "validate": _validate,
    "latest": _latest,
    "registry_conn_id": _maybe(_text),
    "scheduler": _maybe(_text),
    "image": _maybe(_text),
    "training": _text,
}
