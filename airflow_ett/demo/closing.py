"""The demo's closing words: the job's numbers and the retry latencies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow_ett.demo.latency import RetryLatency
from airflow_ett.metric.format import duration, percent


def numbers(job: Mapping[str, Any]) -> list[str]:
    """Return the lines with TTS, TTR, NoF and ETT% of a job's report."""
    recoveries = ", ".join(
        f"{duration(part['ns'])} ({part['cause']}{'' if part['recovered'] else ', not recovered'})"
        for part in job["ttr"]
    )
    return [
        f"TTS   {duration(job['tts_ns'])} to start",
        f"TTR   {recoveries or 'nothing'} to recover",
        f"NoF   {job['nof']} failures",
        f"ETT%  {percent(job['ett_pct'])} of {duration(job['wall_ns'])} trained on new data",
    ]


def latency_lines(latencies: Iterable[RetryLatency]) -> list[str]:
    """Return a line for each retry latency, a trainer's end to the next one's start, by parts."""
    return [
        f"retry latency after {part.cause} ({part.layer}): {duration(part.total_ns)}"
        f" = detection {duration(part.detection_ns)}"
        f" + {'Airflow' if part.layer == 'airflow' else 'relaunch'} {duration(part.decision_ns)}"
        f" + scheduler {duration(part.scheduler_ns)} + agent {duration(part.agent_ns)}"
        for part in latencies
    ]
