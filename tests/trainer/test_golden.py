"""The golden batch: what a checkpoint carries of it, and that the training does not notice."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from airflow_ett import checkpoints
from airflow_ett.errors import ConfigurationError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")

from tests.trainer.saving import Training, adam, layers  # noqa: E402  # they need torch

BATCH = torch.linspace(-1, 1, 40).reshape(5, 8)


def train(job: Any, model: Any, golden: Any = BATCH, **objects: Any) -> Training:
    return Training(job, {"model": model, "optimizer": adam(model), **objects}, golden=golden)


def saved(training: Training) -> dict[str, Any]:
    """What the newest checkpoint carries; it is one of its verified files."""
    training.saver.join()
    newest = checkpoints.newest_verified(training.root)
    assert newest is not None
    assert "golden.safetensors" in newest.files
    named: dict[str, Any] = safetensors.load_file(newest.path / "golden.safetensors")
    return named


def scores(model: Any, *args: Any) -> Any:
    with torch.no_grad():
        return copy.deepcopy(model).eval()(*args)


def test_a_checkpoint_carries_the_scores_of_its_own_weights(job: Any) -> None:
    model = layers()
    training = train(job, model)
    training.step()
    training.save()
    first = saved(training)
    assert torch.equal(first["inputs.0"], BATCH)
    assert torch.equal(first["scores.0"], scores(model, BATCH))
    training.step()
    training.save()
    assert torch.equal(saved(training)["scores.0"], scores(model, BATCH))
    assert not torch.equal(saved(training)["scores.0"], first["scores.0"])


def test_the_training_does_not_notice(job: Any) -> None:
    model = torch.nn.Sequential(layers(), Drawing(), torch.nn.Dropout(0.5))
    model[0][1].eval()  # frozen statistics, as in fine-tuning
    training = train(job, model)
    training.step()
    before = copy.deepcopy(model.state_dict()), random.getstate(), torch.get_rng_state()
    modes = [part.training for part in model.modules()]
    training.save()
    assert all(torch.equal(a, b) for a, b in zip(before[0].values(), state(model), strict=True))
    assert random.getstate() == before[1]
    assert torch.equal(torch.get_rng_state(), before[2])
    assert [part.training for part in model.modules()] == modes
    assert torch.is_grad_enabled()


class Counting(torch.nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Counts its batches, whatever its mode, in two ways."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("within", torch.zeros(()))
        self.register_buffer("anew", torch.zeros(()), persistent=False)

    def forward(self, value: Any) -> Any:
        self.within += 1
        self.anew = self.anew + 1
        return value + self.within


def test_a_model_that_changes_as_it_scores_is_put_back(job: Any) -> None:
    model = torch.nn.Sequential(layers(), Counting())
    training = train(job, model)
    training.step()
    training.save()
    assert float(saved(training)["scores.0"].min()) > 0
    assert [float(buffer) for buffer in model[1].buffers()] == [1, 1]
    training.step()
    assert [float(buffer) for buffer in model[1].buffers()] == [2, 2]


class Drawing(torch.nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Draws random numbers whatever its mode, and returns what it is given."""

    def forward(self, value: Any) -> Any:
        random.random()
        torch.rand(3)
        return value


class Doubling(torch.nn.Module):  # type: ignore[misc]
    """A part with something to compile."""

    def forward(self, value: Any) -> Any:
        return value * 2


def state(model: Any) -> Any:
    return model.state_dict().values()


def test_autocast_around_the_loop_is_left_out(job: Any) -> None:
    model = layers()
    training = train(job, model)
    with torch.autocast("cpu", torch.bfloat16):
        training.save()
    assert torch.equal(saved(training)["scores.0"], scores(model, BATCH))


@pytest.mark.parametrize("where", ["around", "within"])
def test_a_compiled_model_is_scored_as_it_was_written(job: Any, where: str) -> None:
    calls = []

    def backend(graph: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            calls.append(len(args))
            return graph.forward(*args)

        return run

    model = torch.nn.Sequential(Doubling(), layers())
    if where == "within":
        model[0].compile(backend=backend)
    else:
        model = torch.compile(model, backend=backend)
    training = train(job, model)
    training.step()
    assert calls
    seen = len(calls)
    training.save()
    assert len(calls) == seen
    assert saved(training)["scores.0"].shape == (5, 1)
    training.step()
    assert len(calls) > seen, "it is compiled as before"


def test_inputs_and_scores_keep_their_names(job: Any) -> None:
    class Pair(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def forward(self, left: Any, right: Any) -> Any:
            return {"sum": self.layer(left + right), "left": left}

    training = train(job, Pair(), {"left": BATCH[:2], "right": BATCH[:2]})  # the same memory
    training.saver.save()
    assert sorted(saved(training)) == ["inputs.left", "inputs.right", "scores.left", "scores.sum"]


def test_a_model_that_cannot_score_it_is_saved_without_and_warned_about_once(job: Any) -> None:
    training = train(job, layers(), torch.ones(5, 3))
    for _ in range(2):
        training.step()
        training.save()
    assert training.committed == [1, 2]
    newest = checkpoints.newest_verified(training.root)
    assert newest is not None
    assert "golden.safetensors" not in newest.files
    assert "Checkpoints carry no golden scores: mat1 and mat2" in training.diary.warnings[0]


def test_its_cost_is_told(job: Any) -> None:
    training = train(job, layers())
    training.step()
    training.save()
    training.step()
    training.saver.join()
    (told,) = training.told()
    assert 0 < told["golden_ns"] <= told["blocking_ns"]


@pytest.mark.parametrize(
    ("objects", "golden", "message"),
    [
        ({"network": torch.nn.Linear(8, 1)}, BATCH, "needs the torch.nn.Module as model="),
        ({"model": torch.nn.Linear(8, 1)}, (BATCH, 3), "inputs.1 must be a tensor, not int"),
        ({"model": torch.nn.Linear(8, 1)}, {"text": "a"}, "inputs.text must be a tensor"),
    ],
)
def test_what_cannot_be_scored_is_refused_at_once(
    job: Any, objects: Any, golden: Any, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        Training(job, objects, golden=golden)
    assert caught.value.parameter == "golden"


SHARDED = """
import torch, torch.distributed as dist
from airflow_ett.trainer import Session
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

with Session() as ett:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 7), torch.nn.Linear(7, 1))
    whole = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    batch = torch.linspace(-1, 1, 40).reshape(5, 8)
    wanted = model(batch).detach()
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    saver = ett.checkpointer(model=model, golden=batch)
    saver.save(wait=True)
    if dist.get_rank() == 0:
        print("wanted", [round(value, 5) for value in wanted[:, 0].tolist()])
dist.destroy_process_group()
"""


def test_a_sharded_model_is_scored_by_all_ranks_and_written_by_one(job: Any) -> None:
    agent = job.agent(SHARDED, "--nproc", "2")
    out, told = agent.communicate(timeout=120)
    assert agent.returncode == 0, told
    newest = checkpoints.newest_verified(job.context.checkpoints)
    assert newest is not None
    named = safetensors.load_file(newest.path / "golden.safetensors")
    found = [round(value, 5) for value in named["scores.0"][:, 0].tolist()]
    assert f"wanted {found}" in out
