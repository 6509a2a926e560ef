"""Whether a request is what the API server takes, as far as that can be known without it.

The server skips a field that it does not know, and a toleration with a letter too few would be
none: here every field must be known to Kubernetes' own client, and of the type that it has there.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from kubernetes.client import models

NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
"""What names of jobs, pods, namespaces and queues are made of."""

LONGEST_NAME = 63

_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(([KMGTPE]i|[mkMGTPEnu])|[eE][+-]?\d+)?")

_PLAIN: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "datetime": (str,),
}


def name_problem(what: str, name: str) -> str | None:
    """Return why something cannot be called so; None where it can."""
    if len(name) > LONGEST_NAME:
        return f"{what} {name!r} has {len(name)} characters; {LONGEST_NAME} is the limit"
    if not NAME.fullmatch(name):
        return (
            f"{what} {name!r} is not made of small letters, digits and dashes, a letter or a digit "
            "at both ends"
        )
    return None


def template_problems(template: Any) -> Iterator[str]:
    """Yield what is wrong with a pod template, or with a part of one, each with its place in it."""
    misshapen = [*_problems(template, "V1PodTemplateSpec", "")]
    yield from misshapen
    if not misshapen:
        yield from _metadata_problems(template.get("metadata"))
        yield from _container_problems(template.get("spec"))


def _problems(value: Any, kind: str, place: str) -> Iterator[str]:
    inner = re.fullmatch(r"(?:List|list)\[(.+)\]", kind)
    mapped = re.fullmatch(r"(?:Dict|dict)(?:\[str, |\(str, )(.+)[\])]", kind)
    if inner:
        if not isinstance(value, list | tuple):
            yield f"{place}: must be a list, not {_kind(value)}"
            return
        for number, entry in enumerate(value):
            yield from _problems(entry, inner[1], f"{place}[{number}]")
    elif mapped:
        if not isinstance(value, Mapping):
            yield f"{place}: must be a mapping, not {_kind(value)}"
            return
        for key, entry in value.items():
            yield from _problems(entry, mapped[1], f"{place}.{key}")
    elif kind in _PLAIN:
        right = isinstance(value, _PLAIN[kind]) and (kind == "bool" or not isinstance(value, bool))
        if value is not None and not right:
            yield f"{place}: must be {_WORDS.get(kind, kind)}, not {_kind(value)}"
    elif hasattr(models, kind):
        yield from _field_problems(value, kind, place)


def _kind(value: Any) -> str:
    """Return what a value is, and not the value: it may be a secret."""
    return type(value).__name__


def _field_problems(value: Any, kind: str, place: str) -> Iterator[str]:
    if value is None:
        return
    if not isinstance(value, Mapping):
        yield f"{place or 'pod'}: must be a mapping, not {_kind(value)}"
        return
    fields = _fields(kind)
    for key, entry in value.items():
        own = f"{place}.{key}" if place else str(key)
        if key not in fields:
            yield f"{own}: there is no such field; there are {', '.join(sorted(fields))}"
        elif entry is not None:
            yield from _problems(entry, fields[key], own)


@functools.cache
def _fields(kind: str) -> Mapping[str, str]:
    """Return the types of an object's fields, by their names in JSON."""
    model = getattr(models, kind)
    return {model.attribute_map[name]: found for name, found in model.openapi_types.items()}


def _metadata_problems(metadata: Any) -> Iterator[str]:
    if not isinstance(metadata, Mapping):
        return
    for part in ("labels", "annotations"):
        for key, value in (metadata.get(part) or {}).items():
            if not _KEY.fullmatch(str(key)):
                yield f"metadata.{part}: {key!r} is no valid key"
            elif part == "labels" and isinstance(value, str) and not _is_label(value):
                yield (
                    f"metadata.labels.{key}: {value!r} is not made of at most {LONGEST_NAME} "
                    "letters, digits and . _ - between letters or digits"
                )


def _is_label(value: str) -> bool:
    return len(value) <= LONGEST_NAME and bool(_LABEL.fullmatch(value))


def _container_problems(spec: Any) -> Iterator[str]:
    if not isinstance(spec, Mapping):
        return
    for part in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(part) or ()):
            if not isinstance(container, Mapping):
                continue
            place = f"spec.{part}[{number}]"
            for variable in container.get("env") or ():
                name = str((variable or {}).get("name", ""))
                if not _VARIABLE.fullmatch(name):
                    yield f"{place}.env: {name!r} is not made of letters, digits and _"
            yield from _quantity_problems(container.get("resources"), f"{place}.resources")


def _quantity_problems(resources: Any, place: str) -> Iterator[str]:
    if not isinstance(resources, Mapping):
        return
    for part in ("limits", "requests"):
        for name, amount in (resources.get(part) or {}).items():
            if not _QUANTITY.fullmatch(str(amount)):
                yield f"{place}.{part}.{name}: {amount!r} is no quantity, such as 8, 500m or 64Gi"


_WORDS = {"str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false"}
