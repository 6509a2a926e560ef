"""Slurm's short form of a list of nodes: ``n[1-3,07],gpu-a`` is n1, n2, n3, n07 and gpu-a.

As Slurm takes it, a blank does for a comma.
"""

from __future__ import annotations

import itertools
import re

_PART = re.compile(r"\[([^\]]*)\]|([^\[]+)")


def expand(text: str) -> list[str]:
    """Return the nodes' names, in order. Raises ``ValueError`` where brackets do not match."""
    return [name for pattern in _split(text) for name in _names(pattern)]


def _split(text: str) -> list[str]:
    """Return the patterns between the commas or blanks that lie outside of brackets."""
    found, depth = [""], 0
    for letter in text.strip():
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            break
        if letter in ", " and not depth:
            found.append("")
        else:
            found[-1] += letter
    if depth:
        raise ValueError(f"{text!r} is no list of nodes: its brackets do not match")
    return [pattern for pattern in found if pattern]


def _names(pattern: str) -> list[str]:
    """Return the names that a pattern stands for; it may have several pairs of brackets."""
    parts = [_numbers(ranges) if ranges else [plain] for ranges, plain in _PART.findall(pattern)]
    return ["".join(choice) for choice in itertools.product(*parts)]


def _numbers(ranges: str) -> list[str]:
    """Return ``1-3,07`` as texts; a range's numbers are as wide as its first one."""
    found: list[str] = []
    for entry in ranges.split(","):
        first, _, last = entry.partition("-")
        if not last:
            found.append(entry)
            continue
        numbers = range(int(first), int(last) + 1)
        found += [f"{number:0{len(first)}d}" for number in numbers]
    return found
