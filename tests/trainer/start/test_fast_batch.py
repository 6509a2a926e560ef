"""The model compiles on a synthetic batch while workers fetch, and trains as if it had not."""

from __future__ import annotations

import subprocess

import pytest

from airflow_ett.events import Event, JobContext, JobKey, Kind
from tests.trainer.conftest import Job

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

TRAIN = """
import hashlib, multiprocessing, os, random, sys
import torch
from airflow_ett.trainer import Session
from airflow_ett.trainer.start import BatchSpec

asked = multiprocessing.Event()

class Slow(torch.utils.data.Dataset):
    "The first sample is there once a worker was asked for it and something else has happened."
    def __len__(self):
        return 24
    def __getitem__(self, number):
        if number == 0 and torch.utils.data.get_worker_info() and not asked.wait(60):
            raise TimeoutError("nothing happened while this was fetched")
        return torch.arange(6.0) * number, number % 3

def collate(samples):
    "Columns side by side, as a column store has them: the strides are not the usual ones."
    dense = torch.stack([dense for dense, _ in samples], dim=1).T
    return {"dense": dense, "rows": torch.tensor([row for _, row in samples])}

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = torch.nn.Embedding(3, 4)
        self.norm, self.drop = torch.nn.BatchNorm1d(6), torch.nn.Dropout(0.5)
        self.out = torch.nn.Linear(10, 1)
    def forward(self, batch):
        dense = self.drop(self.norm(batch["dense"]))
        return self.out(torch.cat([dense, self.rows(batch["rows"])], 1)).square().mean()

def train(name, *, batch=None, known=True, workers=1, given=lambda loader: loader):
    "One attempt, whose first sample comes before it is asked for where there is no fast batch."
    torch._dynamo.reset()
    torch.manual_seed(1)
    random.seed(1)
    asked.clear() if known else asked.set()
    model = Model()
    model.out.weight.grad = torch.ones(1, 10)  # for the first step to add to
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters())
    loader = torch.utils.data.DataLoader(
        Slow(), batch_size=4, collate_fn=collate, num_workers=workers
    )
    def run(batch):
        asked.set()
        return compiled(batch)
    with Session() as ett:
        ett.fast_batch(run, batch)
        for step, batch in enumerate(ett.track(given(loader)), start=1):
            (compiled(batch) * random.random()).backward()
            optimizer.step()
            optimizer.zero_grad()
            ett.step(4 * step)
    weights = b"".join(t.detach().numpy().tobytes() for t in model.state_dict().values())
    print(name, hashlib.sha256(weights).hexdigest(), flush=True)

contiguous = BatchSpec.of({"dense": torch.ones(4, 6), "rows": torch.zeros(4, dtype=torch.long)})
narrow = BatchSpec.of({"dense": torch.ones(4, 5), "rows": torch.zeros(4, dtype=torch.long)})
os.environ["ETT_FAST_BATCH"] = "0"
train("off", known=False)
del os.environ["ETT_FAST_BATCH"]
train("first", known=False)
train("second")
train("strides", batch=contiguous)
train("narrow", batch=narrow)
train("made", batch=lambda: collate([(torch.rand(6), 0) for _ in range(4)]))
train("alone", workers=0)
train("generator", known=False, given=lambda loader: (batch for batch in loader))
"""


class Life:
    """What each attempt came to: the digest of its weights, and its events."""

    def __init__(self, job: Job, done: subprocess.CompletedProcess[str]) -> None:
        assert done.returncode == 0, done.stderr
        self.digests = dict(line.split() for line in done.stdout.splitlines())
        self._events: list[list[Event]] = []
        for event in job.events():
            if event.kind == Kind.SESSION_STARTED:
                self._events.append([])
            if self._events:
                self._events[-1].append(event)

    def events(self, attempt: str, *kinds: Kind) -> list[Event]:
        number = list(self.digests).index(attempt)
        return [event for event in self._events[number] if event.kind in kinds]

    def levers(self, attempt: str, lever: str = "fast_batch") -> list[tuple[str, str | None]]:
        told = [event.data for event in self.events(attempt, Kind.LEVER)]
        return [(d["outcome"], d.get("reason")) for d in told if d["lever"] == lever]

    def compiled_in(self, attempt: str) -> list[str]:
        """Return in which phase each compilation began; ``""`` is a step."""
        found, within = [], [""]
        spans = {}
        for event in self.events(attempt, Kind.PHASE_BEGIN, Kind.PHASE_END):
            if event.kind == Kind.PHASE_BEGIN:
                spans[event.data["span"]] = event.data["phase"]
                if event.data["phase"] == "compile":
                    found.append(within[-1])
                within.append(event.data["phase"])
            else:
                within.remove(spans[event.data["span"]])
        return found


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    folder = tmp_path_factory.mktemp("life")
    folder.joinpath("run").mkdir()
    key = JobKey("test", "dag", "run", "train")
    cache = str(folder / "cache")
    context = JobContext(key, 1, str(folder / "run"), "", 1, grace_s=20.0, cache=cache)
    job = Job(folder, context, [])
    return Life(job, job.run(TRAIN))


def test_the_training_is_the_same_to_the_bit_whatever_the_fast_batch_did(life: Life) -> None:
    attempts = ["off", "first", "second", "strides", "narrow", "made", "alone", "generator"]
    assert list(life.digests) == attempts
    assert len(set(life.digests.values())) == 1


def test_switched_off_it_does_nothing(life: Life) -> None:
    assert life.levers("off") == [("off", "ETT_FAST_BATCH=0")]
    assert life.compiled_in("off") == ["", ""]


def test_the_first_attempt_leaves_what_a_batch_is_like(life: Life) -> None:
    reason = "what a batch is like is not known from an earlier attempt"
    assert life.levers("first") == [("missed", reason)]
    assert life.levers("first", "warm_recovery")[-1] == ("saved", "batch of train, -1")


def test_the_second_one_compiles_while_the_first_batch_is_fetched(life: Life) -> None:
    assert life.levers("second") == [("used", None)]
    assert life.compiled_in("second") == ["first_batch", "first_batch"]
    (told,) = life.events("second", Kind.LEVER)[-1:]
    compiled = sum(e.data["duration_ns"] for e in life.events("second", Kind.COMPILE))
    assert told.data["duration_ns"] > compiled > 0
    assert [outcome for outcome, _ in life.levers("second", "warm_recovery")] == ["used"]


def test_a_batch_that_is_made_need_not_be_known(life: Life) -> None:
    assert life.levers("made") == [("used", None)]
    assert life.compiled_in("made") == ["first_batch", "first_batch"]
    assert life.levers("made", "warm_recovery") == []


def test_other_strides_compile_again_and_it_is_told_why(life: Life) -> None:
    ((outcome, reason),) = life.levers("strides")
    assert outcome == "missed"
    assert reason is not None
    assert reason.startswith("compiled again on the first real batch: ")
    assert "stride mismatch" in reason
    assert reason.endswith("; dense: stride (6, 1) was expected, (1, 4) came")
    assert life.compiled_in("strides")[:3] == ["first_batch", "first_batch", ""]


def test_a_batch_that_the_model_cannot_take_is_told_of(life: Life) -> None:
    ((outcome, reason),) = life.levers("narrow")
    assert outcome == "unable"
    assert "running_mean should contain 5 elements not 6" in (reason or "")


def test_without_workers_there_is_nothing_to_gain(life: Life) -> None:
    reason = "the loader has no worker processes: nothing is fetched meanwhile"
    assert life.levers("alone") == [("unable", reason)]
    assert life.compiled_in("alone") == ["", ""]


def test_a_generator_may_not_have_begun_to_fetch(life: Life) -> None:
    ((outcome, reason),) = life.levers("generator")
    assert outcome == "used"
    assert (reason or "").startswith("the loader is a generator")
