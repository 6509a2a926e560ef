"""What became of the trainer's levers, in words for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_ett.metric.format import duration

COMPILE_CACHE = "compile_cache"
_WITHOUT = frozenset({"missed", "off", "unable"})


def named(lever: str) -> str:
    """Return a lever's name in words, such as ``compile cache``."""
    return lever.replace("_", " ")


def told(row: Mapping[str, Any]) -> str:
    """Return such as ``used in 0.2 s`` or ``missed on rank 8 (nothing is kept yet)``."""
    rank, reason, took_ns = row.get("rank"), row.get("reason"), row.get("duration_ns")
    took = "" if took_ns is None else f" in {duration(took_ns)}"
    where = f" on rank {rank}" if rank else ""
    return f"{row['outcome']}{where}{took}" + (f" ({reason})" if reason else "")


def summed_up(attempt: Mapping[str, Any]) -> str:
    """Return what became of all levers of an attempt, given as ``as_dict()`` data; '' for none.

    What the attempt compiled for stands with its compile cache: a hit does not mean fast.
    """
    found: dict[str, list[str]] = {}
    for row in attempt["levers"]:
        found.setdefault(row["lever"], []).append(told(row))
    compiled_ns = attempt["phases_ns"].get("compile")
    if COMPILE_CACHE in found and compiled_ns:
        found[COMPILE_CACHE].append(f"compiled for {duration(compiled_ns)}")
    return "; ".join(f"{named(lever)} {', '.join(texts)}" for lever, texts in found.items())


def why_cold(attempt: Mapping[str, Any]) -> str:
    """Return why an attempt's compile cache did not spare it a compilation; '' where nobody told.

    What one rank tells stands for all: they wait for each other.
    """
    texts = (
        told(row)
        for row in attempt["levers"]
        if row["lever"] == COMPILE_CACHE and row["outcome"] in _WITHOUT
    )
    return ", ".join(texts)
