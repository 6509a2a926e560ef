"""What to add for a lever of the trainer; where it is there already, why it did not help."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_ett.metric.outcomes import named, told
from airflow_ett.metric.plans.advice.gains import Saving
from airflow_ett.metric.plans.advice.jobs import Jobs, task_of

_ADD: Mapping[str, str] = {
    "compile_cache": "Add ett.compile_cache(model) before the first compilation.",
    "fast_batch": "Add ett.fast_batch(run) before ett.track, with a run(batch) that returns the "
    "loss.",
    "parallel_init": "Add ett.parallel_init(preproc_creation=..., train_module_creation=...), with "
    "a function for each.",
    "checkpoint_interval": 'ett.checkpointer(..., every_s="auto") finds it by itself; '
    "ETT_CHECKPOINT_EVERY_S in the operator's env goes before what the code says.",
    "background_saves": "ett.checkpointer(..., background=True) writes beside the training, as it "
    "does by default.",
    "data_wait": "Where workers make batches fast enough, ett.parcels(loader, 16) has 16 of them "
    "handed over at a time.",
}
_BY: Mapping[str, str] = {"data_wait": "parcels"}
"""What is but one way to come by a gain: where it is there already, it is not to blame."""
_MOST = 3


def with_how(key: str, title: str, evidence: str, jobs: Jobs, found: Saving) -> tuple[str, str]:
    """Return title and evidence with what to do, by what the newest run told of the lever."""
    tasks = {task_of(piece.job) for piece, _ in found.shown}
    newest = next(job for job in reversed(jobs.results) if task_of(job) in tasks)
    lever = _BY.get(key, key)
    rows = [row for one in newest["attempts"] for row in one["levers"] if row["lever"] == lever]
    if not rows:
        return title, f"{evidence} {_ADD[key]}" if key in _ADD else evidence
    if key in _BY:
        return title, evidence
    texts = list(dict.fromkeys(told(row) for row in rows))[-_MOST:]
    return (
        f"See why the {named(key)} did not help",
        f"{evidence} The newest run has the {named(key)} already: {', '.join(texts)}.",
    )
