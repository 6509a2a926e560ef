"""What each rank keeps for itself: its random numbers, and the state of objects without shards.

::

    random-r<rank>.pt          the rank's random numbers
    state-<name>.pt            an object's state on the first rank
    state-<name>-r<rank>.pt    its state on another rank, where it differs: a data loader's position

So a learning-rate schedule is written once, and ten thousand loaders by their own ranks. All of it
is read back as weights only, running nothing.
"""

from __future__ import annotations

import hashlib
import io
import logging
from collections.abc import Collection, Mapping
from typing import Any

from airflow_ett.checkpoints import Checkpoint
from airflow_ett.errors import CheckpointError
from airflow_ett.trainer import randomness
from airflow_ett.trainer.ranks import Ranks

_log = logging.getLogger("airflow_ett.trainer")


class OwnState:
    """The states of ``objects``, each with ``state_dict`` and ``load_state_dict``, on this rank."""

    def __init__(self, ranks: Ranks, objects: Mapping[str, Any]) -> None:
        self._ranks = ranks
        self._objects = objects
        self._proved = False
        self._random: Mapping[str, Any] | None = None

    def encode(self) -> dict[str, bytes]:
        """Return the present states by file name.

        Raises :class:`CheckpointError` that names an object whose state could not be read back.
        """
        states = {f"state-{name}.pt": _encode(o.state_dict()) for name, o in self._objects.items()}
        if not self._proved:
            for name in self._objects:
                _prove(name, states[f"state-{name}.pt"])
            self._proved = True
        states[f"random-r{self._ranks.rank}.pt"] = _encode(randomness.capture())
        return states

    def mine(self, states: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return what of it this rank is to write: what the first rank does not write for it.

        All ranks call it.
        """
        digests = {name: hashlib.sha256(content).digest() for name, content in states.items()}
        first: Mapping[str, bytes] = self._ranks.share(digests)
        if self._ranks.first:
            return dict(states)
        return {
            self._of_rank(name) if name in first else name: content
            for name, content in states.items()
            if first.get(name) != digests[name]
        }

    def put_back(self, checkpoint: Checkpoint) -> None:
        """Load the states; raises what reading and ``load_state_dict`` raise."""
        writers = sum(name.startswith("random-r") for name in checkpoint.files)
        same = writers == self._ranks.world
        for name, thing in self._objects.items():
            common = f"state-{name}.pt"
            own = self._of_rank(common)
            chosen = own if same and own in checkpoint.files else common
            thing.load_state_dict(_decode((checkpoint.path / chosen).read_bytes()))
        if same:
            random = f"random-r{self._ranks.rank}.pt"
            self._random = _decode((checkpoint.path / random).read_bytes())
            self.put_back_random()
        elif self._ranks.first:
            self._tell_of_other_ranks(checkpoint.files, writers)

    def put_back_random(self) -> None:
        """Let the random numbers go on from where the loaded checkpoint has them, if any."""
        if self._random is not None:
            randomness.put_back(self._random)

    def _of_rank(self, name: str) -> str:
        return f"{name.removesuffix('.pt')}-r{self._ranks.rank}.pt"

    def _tell_of_other_ranks(self, files: Collection[str], writers: int) -> None:
        differed = [
            name
            for name in self._objects
            if any(file.startswith(f"state-{name}-r") for file in files)
        ]
        also = f"; {', '.join(differed)}: every rank goes on from the first one's" * bool(differed)
        _log.warning(
            "The checkpoint was saved by %d ranks and is loaded by %d: weights and cursor go on, "
            "random numbers do as they are seeded%s.",
            writers,
            self._ranks.world,
            also,
        )


def _encode(state: Any) -> bytes:
    import torch

    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def _decode(content: bytes) -> Any:
    import torch

    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def _prove(name: str, content: bytes) -> None:
    """What only a pickle's code could read back is found now, and not when it is needed."""
    try:
        _decode(content)
    except Exception as error:
        raise CheckpointError(
            f"the state of {name} could not be loaded again: {str(error).splitlines()[0]} Let its "
            "state_dict return numbers, texts, lists, dicts and tensors alone"
        ) from error
