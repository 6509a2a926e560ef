"""The levers where a Session is not used as it is meant to be: each says so, or does nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.events import Kind


@pytest.fixture
def job(job: Any, tmp_path: Path) -> Any:
    """A launched job that has a place for what is kept."""
    job.context = replace(job.context, cache=str(tmp_path / "cache"))
    return job


def told(job: Any, lever: str) -> list[tuple[str, str]]:
    levers = [event.data for event in job.events(Kind.LEVER)]
    return [(data["outcome"], data.get("reason")) for data in levers if data["lever"] == lever]


@pytest.mark.parametrize(
    "code",
    [
        "ett.fast_batch(print)",
        "list(ett.track(range(3))); ett.fast_batch(print); list(ett.track(range(3)))",
        "ett.fast_batch(print); list(ett.track(()))",
    ],
    ids=["no loop", "after the loop's begin", "no batch"],
)
def test_a_fast_batch_that_is_good_for_nothing_is_told_of(job: Any, code: str) -> None:
    done = job.run(f"from airflow_ett.trainer import Session\nwith Session() as ett:\n    {code}")
    assert done.returncode == 0, done.stderr
    reason = "no first batch came of track after it: call it before the loop"
    assert told(job, "fast_batch")[-1] == ("unable", reason)


def test_a_training_that_fails_before_its_loop_blames_no_lever(job: Any) -> None:
    code = "from airflow_ett.trainer import Session\nwith Session() as ett:\n"
    assert job.run(f"{code}    ett.fast_batch(print)\n    raise ValueError").returncode == 1
    assert told(job, "fast_batch") == []


@pytest.mark.parametrize("name", ["None", "7", r"'\ud800'"])
def test_a_name_that_cannot_be_kept_ends_no_training(job: Any, name: str) -> None:
    done = job.run(f"""
        from airflow_ett.trainer import Session
        with Session() as ett:
            print(ett.warm({name}, lambda: 5))
    """)
    assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr
    assert [outcome for outcome, _ in told(job, "warm_recovery")] == ["unable"]


def test_only_the_outer_session_of_the_first_process_keeps_anything(
    job: Any, tmp_path: Path
) -> None:
    done = job.run("""
        import os
        from airflow_ett.trainer import Session
        with Session() as ett:
            early = Session()
            early.fast_batch(print)  # before it knows that it is an inner one
            with early as inner:
                print(inner.warm("inner", lambda: 1), list(inner.track([2])))
                inner.autotune()
            child = os.fork()
            if child == 0:
                print(ett.warm("child", lambda: 3), flush=True)
                os._exit(0)
            os.waitpid(child, 0)
    """)
    assert (done.returncode, done.stdout) == (0, "1 [2]\n3\n"), done.stderr
    assert not (tmp_path / "cache").exists()
    assert job.events(Kind.LEVER) == []


def test_a_reason_is_no_page(job: Any) -> None:
    """Torch's own errors are pages long, and stand in a line of each report."""
    done = job.run("""
        from airflow_ett.trainer import Session
        with Session() as ett:
            ett.warm("name " * 1000, lambda: 5)
    """)
    assert done.returncode == 0, done.stderr
    reasons = [reason for _, reason in told(job, "warm_recovery")]
    assert [len(reason) for reason in reasons] == [501, 501]
    assert all(reason.endswith("…") for reason in reasons)


@pytest.mark.torch
def test_a_fast_batch_without_a_loss_says_that_it_needs_one(job: Any) -> None:
    pytest.importorskip("torch")
    done = job.run("""
        import torch
        from airflow_ett.trainer import Session
        model = torch.nn.Linear(2, 1)
        runs = [lambda batch: None, torch.no_grad()(lambda batch: model(batch).mean()), model]
        for run in runs:
            with Session() as ett:
                ett.fast_batch(run, lambda: torch.ones(3, 2))
                list(ett.track([torch.ones(3, 2)]))
    """)
    assert done.returncode == 0, done.stderr
    reason = "it must return the loss: one number, with a gradient"
    assert told(job, "fast_batch") == [("unable", reason)] * 3
