"""What a checkpoint says of a model's weights, as publishing reads it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from airflow_ett.checkpoints import Checkpoint
from airflow_ett.publish.weights import write_weights


def model_weights(checkpoint: Checkpoint, cast: str | None = None) -> dict[str, Any]:
    """Return the tensors that a snapshot of the checkpoint holds."""
    from safetensors.torch import load_file

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "weights")
        write_weights(checkpoint, target, cast=cast)
        assert list(Path(folder).iterdir()) == [target]
        tensors: dict[str, Any] = load_file(target)
        return {name: tensor.clone() for name, tensor in tensors.items()}
