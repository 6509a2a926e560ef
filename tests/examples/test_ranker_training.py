"""The example trainer: alone, failing on demand, and what it learns."""

from __future__ import annotations

import argparse
import math
import os
import signal
import subprocess
import sys

import pytest

from airflow_ett.examples.ranker.evaluation import auc
from airflow_ett.examples.ranker.faults import Fault, InjectedFailure, parse_faults, strike

pytestmark = pytest.mark.torch


def train(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("ETT_JOB", None)
    command = [sys.executable, "-m", "airflow_ett.examples.ranker.train"]
    command += ["--samples", "2048", "--no-compile", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_it_trains_alone() -> None:
    done = train()
    assert done.returncode == 0, done.stderr
    assert "synthetic" in done.stdout
    assert "torch.compile: off (--no-compile)" in done.stdout
    assert "evaluation: auc" in done.stdout


def test_it_raises_on_demand() -> None:
    done = train("--inject", "1:raise:1000")
    assert done.returncode == 1
    assert "InjectedFailure: injected failure in submission 1, cursor 1024" in done.stderr


def test_it_dies_on_demand() -> None:
    assert train("--inject", "1:kill:1000").returncode == -signal.SIGKILL


def test_without_a_compiler_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    done = train()
    assert done.returncode == 0
    assert "no C++ compiler: no-such-compiler not found" in done.stdout


@pytest.mark.parametrize("text", ["1", "1:raise", "1:explode:5", "x:kill:5", "1:raise:5,1:kill:-5"])
def test_a_malformed_fault_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="SUBMISSION:raise"):
        parse_faults(text)


def test_a_fault_strikes_once_and_in_its_submission_only() -> None:
    faults = parse_faults("2:raise:100,3:kill:50")
    assert faults == [Fault(2, "raise", 100), Fault(3, "kill", 50)]
    assert parse_faults("") == []
    strike(faults, 1, 64, 128)
    strike(faults, 2, 0, 64)
    strike(faults, 2, 128, 192)
    with pytest.raises(InjectedFailure, match="submission 2, cursor 128"):
        strike(faults, 2, 64, 128)


def test_auc_counts_ties_half() -> None:
    import torch

    labels = torch.tensor([0.0, 1.0, 0.0, 1.0])
    assert auc(torch.tensor([0.1, 0.9, 0.2, 0.8]), labels) == 1.0
    assert auc(torch.tensor([0.5, 0.5, 0.5, 0.5]), labels) == 0.5
    assert auc(torch.tensor([0.1, 0.2, 0.2, 0.3]), labels) == 0.875
    assert math.isnan(auc(torch.tensor([0.1]), torch.tensor([1.0])))


def test_the_model_has_a_score_for_each_example() -> None:
    from airflow_ett.examples.ranker.model import build, example_batch

    scores = build()(*example_batch())
    assert scores.shape == (16,)
    assert bool(scores.isfinite().all())
