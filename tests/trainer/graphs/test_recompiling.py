"""A training that compiles anew, the lines that its log leads to, and what those lines change."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.events import Kind
from airflow_ett.metric import measure
from airflow_ett.metric.plans.recompiles import VARIABLE, Recompiles, recompiles

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
_CALLBACK = Path(torch.__file__).with_name("_dynamo") / "callback.py"
if "CallbackArgs" not in _CALLBACK.read_text():
    pytest.skip("this torch does not say why it compiles", allow_module_level=True)

TRAINING = """
    import torch
    from airflow_ett.trainer import Session
    from airflow_ett.trainer.graphs import mark_dynamic, pad_to

    def automatic(x):
        return (x["rows"] * 2).sum()

    def static(y):
        return (y["rows"] * 2).sum()

    def marked(batch):
        return (batch["rows"] * 3).sum()

    def padded(batch):
        return (batch["rows"] * 4).sum()

    forward = [
        torch.compile(automatic, backend="eager"),
        torch.compile(static, backend="eager", dynamic=False),
        torch.compile(marked, backend="eager"),
        torch.compile(padded, backend="eager"),
    ]
    with Session() as ett:
        for number, size in enumerate(ett.track([512, 384, 200, 512, 77, 1]), 1):
            for function in forward:
                batch = {"rows": torch.ones(size, 4)}
                if function is forward[2]:
                    mark_dynamic(batch)
                elif function is forward[3]:
                    batch, _, _ = pad_to(batch, 512)
                function(batch)
            ett.step(number)
"""


def test_the_log_leads_to_lines_that_help(job: Any) -> None:
    before = ran(job)
    assert graphs(job) == {"automatic": 3, "static": 5, "marked": 2, "padded": 1}
    told = {group.what: group for group in before.groups}
    assert set(told) == {
        "size of dimension 0 of x['rows']",
        "size of dimension 0 of y['rows']",
        "x['rows'] has one row, or none",
        "batch['rows'] has one row, or none",
    }
    size = told["size of dimension 0 of y['rows']"]
    assert (size.graphs, size.values) == (4, ("1", "77", "200", "384", "512"))
    assert size.lost_ns > 0
    assert size.add[0].startswith("mark_dynamic(batch)")
    assert size.add[1] == f"env={{\"{VARIABLE}\": \"L['y']['rows']\"}}  # of the operator"
    assert size.add[2].startswith("pad_to(batch, 512)")
    lengths = (event.data["duration_ns"] for event in job.events(Kind.COMPILE))
    assert sum(lengths) == before.compile_ns
    assert (before.graphs, before.anew) == (11, 7)

    assert sorted(before.dynamic_sources.split(",")) == ["L['x']['rows']", "L['y']['rows']"]
    job.next_submission()
    after = ran(job, **{VARIABLE: before.dynamic_sources})
    assert graphs(job) == {"automatic": 2, "static": 2, "marked": 2, "padded": 1}
    assert {group.kind for group in after.groups} == {"few_rows"}


def ran(job: Any, **environ: str) -> Recompiles:
    done = job.run(TRAINING, **environ)
    assert done.returncode == 0, done.stderr
    return recompiles([measure(present(job)).as_dict()])


def present(job: Any) -> list[Any]:
    number = job.context.submission
    return [e for e in job.events() if e.attempt and e.attempt.submission == number]


def graphs(job: Any) -> dict[str, int]:
    """How many graphs each function has: torch numbers functions as they come."""
    ids = [event.data["id"] for event in present(job) if event.kind == Kind.COMPILE]
    counts = Counter(int(name.partition("/")[0]) for name in ids)
    names = ("automatic", "static", "marked", "padded")
    return {name: counts[number] for number, name in enumerate(names)}
