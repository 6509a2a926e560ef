"""A list of hosts for people, in Slurm's short form: ``n[1-3,07],gpu-a``. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})", re.DOTALL)


def listed(names: Sequence[str], most: int = 8) -> str:
    """Return the hosts in their order, each once; of many different names the first ``most``."""
    once = list(dict.fromkeys(names))
    texts: list[str] = []
    told = 0
    for (prefix, _), group in groupby(once, _kind):
        hosts = list(group)
        if len(texts) == most:
            break
        numbers = [host[len(prefix) :] for host in hosts]
        texts.append(f"{prefix}[{','.join(_ranges(numbers))}]" if len(hosts) > 1 else hosts[0])
        told += len(hosts)
    left = len(once) - told
    return ",".join(texts) + (f" and {left:,} more" if left else "")


def _kind(name: str) -> tuple[str, bool]:
    """Return what stands before the number at a name's end, and whether there is one."""
    found = _NUMBERED.fullmatch(name)
    return (found[1], True) if found else (name, False)


def _ranges(numbers: Sequence[str]) -> Iterator[str]:
    """Yield texts such as ``1-3`` for numbers as wide that follow each other."""
    first = last = numbers[0]
    for number in numbers[1:]:
        if len(number) == len(last) and int(number) == int(last) + 1:
            last = number
            continue
        yield _range(first, last)
        first = last = number
    yield _range(first, last)


def _range(first: str, last: str) -> str:
    return first if first == last else f"{first}-{last}"
