"""What to publish, and how: said once, checked before anything is read. Standard library only."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_ett.errors import ConfigurationError

CASTS = ("bfloat16", "float16", "float32")
INT8 = "int8"
EXPORT = "export"
TRANSFORMS = (*CASTS, INT8, EXPORT)

_SAFE = re.compile(r"(?!latest\Z|draft-)[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")


@dataclass(frozen=True, slots=True)
class Request:
    """One model to publish.

    ``model`` and ``golden`` are ``pkg.module:function``: the first returns the model, the second
    the batch to try it with. ``transforms`` are of :data:`TRANSFORMS`, in their order: at most one
    cast or ``int8``, then perhaps ``export``. ``tolerance`` is the greatest difference of a score
    from the trainer's; None: what the transforms cost at most. ``training`` goes into the
    snapshot's manifest as it is: the job's key, its metrics.

    Raises :class:`ConfigurationError` that names the parameter.
    """

    checkpoint: str
    model: str
    registry: str
    name: str
    version: str | None = None
    transforms: tuple[str, ...] = ()
    golden: str | None = None
    tolerance: float | None = None
    force_latest: bool = False
    training: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name("name", self.name)
        if self.version is not None:
            check_name("version", self.version)
        check_function("model", self.model)
        if self.golden is not None:
            check_function("golden", self.golden)
        check_transforms(self.transforms)
        check_tolerance(self.tolerance)
        if not isinstance(self.training, Mapping):
            raise ConfigurationError("training", f"must be an object, not {self.training!r}")

    @property
    def cast(self) -> str | None:
        """The transform that changes the weights, if any."""
        return next((name for name in self.transforms if name != EXPORT), None)

    @property
    def exported(self) -> bool:
        """Whether a program is wanted beside the weights."""
        return EXPORT in self.transforms


def check_name(parameter: str, text: str) -> None:
    """Raise :class:`ConfigurationError` unless a text can name a model or version everywhere.

    It may become a folder's name, a part of an address, a word in MLflow.
    """
    if not _SAFE.fullmatch(text):
        raise ConfigurationError(
            parameter,
            f"{text!r} must be 1 to 128 letters, digits and . _ + - and begin with one of the "
            "first two; `latest` and `draft-…` are taken",
        )


def check_function(parameter: str, text: str) -> None:
    """Raise :class:`ConfigurationError` unless a text is of the form ``pkg.module:function``."""
    module, _, function = text.partition(":")
    if not (all(part.isidentifier() for part in module.split(".")) and function.isidentifier()):
        raise ConfigurationError(parameter, f"{text!r} is not of the form pkg.module:function")


def check_transforms(transforms: tuple[str, ...]) -> None:
    """Raise :class:`ConfigurationError` for an unknown transform, and where two of them quarrel."""
    for name in transforms:
        if name not in TRANSFORMS:
            raise ConfigurationError(
                "transforms", f"{name!r} is none; there are {', '.join(TRANSFORMS)}"
            )
    if len(set(transforms)) < len(transforms):
        raise ConfigurationError("transforms", f"{list(transforms)} names one twice")
    weights = [name for name in transforms if name != EXPORT]
    if len(weights) > 1:
        raise ConfigurationError("transforms", f"choose one of {' and '.join(weights)}")


def check_tolerance(tolerance: float | None) -> None:
    """Raise :class:`ConfigurationError` unless it is None or a finite number, 0 or more."""
    if tolerance is None:
        return
    number = isinstance(tolerance, int | float) and not isinstance(tolerance, bool)
    if not number or not 0 <= tolerance < math.inf:
        raise ConfigurationError("validate", f"tolerance must be 0 or more, not {tolerance!r}")
