"""What a GPU makes different: random numbers, staging, kernels that are ordered, compilation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_ett.events import Kind
from tests.trainer.test_exactness import compare

pytestmark = pytest.mark.torch


def test_r27_a_killed_training_is_the_straight_one_in_every_bit(job: Any, tmp_path: Path) -> None:
    compare(job, tmp_path, "cuda")


def test_what_a_phase_has_ordered_is_done_at_its_end(job: Any) -> None:
    done = job.run("""
        import torch
        from airflow_ett.trainer import Session
        big = torch.randn(4096, 4096, device="cuda")
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with Session() as ett:
            with ett.phase("evaluation"):
                begin.record()
                for _ in range(200):
                    big = big @ big / 4096
                end.record()
            end.synchronize()
        print(begin.elapsed_time(end))
    """)
    assert done.returncode == 0, done.stderr
    begins = {e.data["span"]: e for e in job.events(Kind.PHASE_BEGIN)}
    ends = {e.data["span"]: e.time_ns for e in job.events(Kind.PHASE_END)}
    (span,) = [s for s, event in begins.items() if event.data["phase"] == "evaluation"]
    assert (ends[span] - begins[span].time_ns) / 1e6 >= float(done.stdout) * 0.99


def test_forward_and_backward_are_compiled_in_the_main_lane(job: Any) -> None:
    done = job.run("""
        import torch
        from airflow_ett.trainer import Session
        with Session() as ett:
            model = torch.compile(torch.nn.Linear(16, 1).to("cuda"))
            for step in ett.track(range(3), cursor=0):
                model(torch.ones(8, 16, device="cuda")).sum().backward()
                ett.step(1)
    """)
    assert done.returncode == 0, done.stderr
    compiles = job.events(Kind.COMPILE)
    assert {event.data["trigger"] for event in compiles} == {"dynamo", "lazy_backward"}
    assert {event.data.get("lane", "main") for event in compiles} == {"main"}
