"""A user's changes to the pod template, laid over what TorchX renders. Pure.

Mappings are merged key by key, and None removes what is there. Lists of named things are merged as
``kubectl patch`` does: an entry changes the one of its name, or is added. Other lists are added to.
A container without a name is the trainer's.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}
"""By which field the entries of a list are told apart."""

_REPLACED = frozenset({"command", "args"})
"""Lists that make sense as a whole alone."""


def patched(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``patch`` laid over it; both stay as they are."""
    merged = dict(copy.deepcopy(base))
    for key, value in patch.items():
        old = merged.get(key)
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            merged[key] = patched(old if isinstance(old, Mapping) else {}, value)
        elif isinstance(value, list | tuple) and isinstance(old, list) and key not in _REPLACED:
            merged[key] = _joined(key, old, value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


def _joined(key: str, old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    name = _KEYS.get(key)
    entries = list(old)
    for entry in new:
        place = _place(key, name, entries, entry) if isinstance(entry, Mapping) else None
        if place is None:
            entries.append(copy.deepcopy(entry))
        else:
            entries[place] = patched(entries[place], entry)
    return entries


def _place(
    key: str, name: str | None, entries: Sequence[Any], entry: Mapping[str, Any]
) -> int | None:
    """Return which of the entries a new one changes, None where it is one more."""
    if name is None:
        return None
    if key == "containers" and name not in entry:
        return 0
    same = (i for i, old in enumerate(entries) if old.get(name) == entry.get(name))
    return next(same, None)
