"""The names of ``[ett] resources``: what each of them asks of a node, whatever the scheduler. Pure.

::

    {
      "h100.8": {
        "cpu": 96, "gpu": 8, "memMB": 900000,
        "cfg": {
          "slurm": {"partition": "h100", "gres": "gpu:h100:8"},
          "kubernetes": {"queue": "h100"}
        }
      }
    }

A number that is left out is not asked for, and a scheduler that ``cfg`` leaves out is told nothing
more. As with TorchX's own names, capitals do not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from airflow_ett.errors import ConfigurationError

OPTION = "[ett] resources"

Asked: TypeAlias = str | Mapping[str, int] | None
"""What an operator's ``resource`` is: a name, or ``cpu``, ``gpu`` and ``memMB``."""

_LEAST = {"cpu": 1, "gpu": 0, "memMB": 1}

_NOT_ASKED = {"cpu": -1, "gpu": 0, "memMB": -1}
"""What TorchX's schedulers take for no wish."""


@dataclass(frozen=True, slots=True)
class Named:
    """One entry of the option: numbers as TorchX has them, and run options by scheduler."""

    numbers: Mapping[str, int]
    cfg: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def read(option: Mapping[str, Any]) -> dict[str, Named]:
    """Return the option's entries by name in small letters.

    Raises :class:`ConfigurationError` that names the option and the entry.
    """
    found: dict[str, Named] = {}
    for name, entry in option.items():
        if not name.strip() or name.lower() in found:
            problem = "is given twice, since capitals do not matter" if name.strip() else "is empty"
            raise ConfigurationError(OPTION, f"the name {name!r} {problem}")
        found[name.lower()] = _entry(name, entry)
    return found


def find(option: Mapping[str, Any], resource: object) -> Named | None:
    """Return the entry that a name stands for; None where it has none: TorchX may know the name."""
    return read(option).get(resource.lower()) if isinstance(resource, str) else None


def resolve(
    option: Mapping[str, Any], resource: Asked, scheduler: str
) -> tuple[Asked, Mapping[str, Any]]:
    """Return what to ask for in a name's place, and the scheduler's run options that go with it.

    What is no name of the option comes back as it is.
    """
    named = find(option, resource)
    return (named.numbers, named.cfg.get(scheduler, {})) if named else (resource, {})


def unknown(option: Mapping[str, Any], name: str) -> str:
    """Return in words that neither the option nor TorchX has a resource of this name."""
    names = f"{OPTION} has {', '.join(sorted(option))}" if option else f"{OPTION} is empty"
    return f"there is no {name!r}: {names}, and none is registered with TorchX under that name"


def _entry(name: str, entry: Any) -> Named:
    def wrong(problem: str) -> ConfigurationError:
        return ConfigurationError(OPTION, f"{name}: {problem}")

    if not isinstance(entry, dict):
        raise wrong(f"must be an object with {', '.join(_LEAST)} and cfg, not {entry!r}")
    numbers = {key: value for key, value in entry.items() if key != "cfg"}
    for key, value in numbers.items():
        if key not in _LEAST:
            raise wrong(f"unknown {key}; known are {', '.join(_LEAST)} and cfg")
        if isinstance(value, bool) or not isinstance(value, int) or value < _LEAST[key]:
            raise wrong(f"{key} must be a whole number, {_LEAST[key]} or more, not {value!r}")
    cfg = entry.get("cfg", {})
    if not isinstance(cfg, dict) or not all(isinstance(options, dict) for options in cfg.values()):
        raise wrong('cfg must hold options by scheduler, such as {"slurm": {"partition": "h100"}}')
    if any(mark in str(cfg) for mark in ("{{", "{%")):
        raise wrong("cfg is not templated: a template goes into cfg of the task")
    return Named({**_NOT_ASKED, **numbers}, cfg)
