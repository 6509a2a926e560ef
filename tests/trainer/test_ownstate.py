"""What each rank keeps for itself: written once where it is the same, found by its rank again."""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from airflow_ett import checkpoints
from airflow_ett.checkpoints import Checkpoint
from airflow_ett.errors import CheckpointError
from airflow_ett.events import AttemptId
from airflow_ett.trainer.ownstate import OwnState

pytestmark = pytest.mark.torch
pytest.importorskip("torch")


@dataclass
class OneOf:
    """A rank of several, without a process group: the first one shares through ``box``."""

    rank: int
    world: int
    box: list[Any] = field(default_factory=list)

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, value: Any) -> Any:
        if self.first:
            self.box.append(value)
        return self.box[-1]


class Position:
    """As torchdata's StatefulDataLoader has it: a nested state of plain values."""

    def __init__(self, at: int, worker: Any = None) -> None:
        self.state = {"_snapshot": {"_step": at, "_workers": [worker]}, "_steps_since_snapshot": 0}

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


def save(root: Path, *ranks: dict[str, Any]) -> Checkpoint:
    """Save what these ranks have, by name, with a random number of its own for each."""
    path = root / checkpoints.folder_name(8, AttemptId(1))
    path.mkdir(parents=True)
    box: list[Any] = []
    for rank, objects in enumerate(ranks):
        random.seed(rank)
        own = OwnState(OneOf(rank, len(ranks), box), objects)  # type: ignore[arg-type]
        for name, content in own.mine(own.encode()).items():
            (path / name).write_bytes(content)
    return checkpoints.commit(
        path,
        job="j",
        attempt=AttemptId(1),
        epoch=1,
        cursor=8,
    )


def test_a_loader_of_each_rank_and_one_schedule_of_all(tmp_path: Path) -> None:
    saved = save(
        tmp_path,
        *({"loader": Position(10 + rank), "schedule": Position(5)} for rank in range(3)),
    )
    assert set(saved.files) == {
        "random-r0.pt",
        "random-r1.pt",
        "random-r2.pt",
        "state-loader.pt",
        "state-loader-r1.pt",
        "state-loader-r2.pt",
        "state-schedule.pt",
    }
    for rank in range(3):
        loader, schedule = Position(0), Position(0)
        random.seed(99)
        OwnState(OneOf(rank, 3), {"loader": loader, "schedule": schedule}).put_back(saved)  # type: ignore[arg-type]
        assert loader.state == Position(10 + rank).state
        assert schedule.state == Position(5).state
        assert random.random() == random.Random(rank).random()


def test_another_number_of_ranks_goes_on_from_the_first_one_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved = save(
        tmp_path,
        *({"loader": Position(10 + rank), "schedule": Position(5)} for rank in range(2)),
    )
    loader, schedule = Position(0), Position(0)
    random.seed(99)
    with caplog.at_level(logging.WARNING):
        OwnState(OneOf(0, 1), {"loader": loader, "schedule": schedule}).put_back(saved)  # type: ignore[arg-type]
    assert loader.state == Position(10).state
    assert random.random() == random.Random(99).random()
    (told,) = caplog.messages
    assert "saved by 2 ranks and is loaded by 1" in told
    assert "loader:" in told
    assert "schedule" not in told


def test_a_state_that_only_code_could_read_back_is_found_at_the_first_save() -> None:
    own = OwnState(OneOf(0, 1), {"schedule": Position(5), "loader": Position(1, Path("x"))})  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match="state of loader could not be loaded again"):
        own.encode()


def test_an_object_that_was_not_saved_is_an_error(tmp_path: Path) -> None:
    saved = save(tmp_path, {"loader": Position(1)})
    with pytest.raises(FileNotFoundError, match="state-ema"):
        OwnState(OneOf(0, 1), {"ema": Position(0)}).put_back(saved)  # type: ignore[arg-type]
