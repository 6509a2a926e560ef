"""An int8 snapshot as a model: it scores as its restored weights do, and keeps them in int8."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from airflow_ett.publish.loading import load_weights
from airflow_ett.publish.program import export
from tests.publish.test_loading import changed

pytestmark = pytest.mark.torch

IDS = torch.tensor([1, 2, 3, 2, 2, 9])


def pair(folder: Path, make: Callable[[], Any]) -> tuple[Any, Any]:
    """Return a model loaded from an int8 file, and one with the same weights restored."""
    torch.manual_seed(5)
    model = make().eval()
    stored = changed(model.state_dict(), ["int8"])
    save_file(stored, folder / "weights")
    scales = {name for name in stored if name.endswith(".scale")}
    values = {
        name: tensor.float() * stored[f"{name}.scale"][:, None]
        if f"{name}.scale" in scales
        else tensor
        for name, tensor in stored.items()
        if name not in scales
    }
    model.load_state_dict(values)
    return load_weights(folder / "weights", make, ["int8"]).module, model


@pytest.mark.parametrize("ids", [IDS, IDS.view(2, 3), IDS[0], IDS[:0], IDS.int()])
def test_a_table_gives_the_rows_of_its_values(tmp_path: Path, ids: Any) -> None:
    found, wanted = pair(tmp_path, lambda: nn.Sequential(nn.Embedding(10, 4, padding_idx=2)))
    assert torch.equal(found(ids), wanted(ids))
    assert torch.equal(found[0].weight, wanted[0].weight)
    assert isinstance(found[0], nn.Embedding)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2, 5])
def test_bags_give_what_their_values_give(tmp_path: Path, mode: str, padding: int | None) -> None:
    def make() -> Any:
        return nn.EmbeddingBag(
            10, 4, mode=mode, padding_idx=padding, include_last_offset=padding is None
        )

    found, wanted = pair(tmp_path, make)
    offsets = torch.tensor([0, 2, 2, 6])
    for args in ((IDS, offsets), (IDS.view(2, 3),), (IDS[:0], offsets[:1] * 0)):
        assert torch.equal(found(*args), wanted(*args))
    if mode == "sum":
        weights = torch.linspace(0, 1, 6)
        assert torch.equal(found(IDS, offsets, weights), wanted(IDS, offsets, weights))


@pytest.mark.parametrize("table", [nn.Embedding, nn.EmbeddingBag])
def test_the_file_stays_mapped_and_int8(tmp_path: Path, table: Any) -> None:
    model, _ = pair(tmp_path, lambda: nn.Sequential(table(1000, 8)))
    assert model[0].int8.dtype == torch.int8
    spans = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    mapped = [span[0].split("-") for span in spans if span[-1] == str(tmp_path / "weights")]
    address = model[0].int8.data_ptr()
    assert any(int(begin, 16) <= address < int(end, 16) for begin, end in mapped)


def test_what_reads_a_layers_weight_still_can(tmp_path: Path) -> None:
    """As torch's own transformer does, on its fast path."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    found, wanted = pair(tmp_path, lambda: nn.TransformerEncoder(layer, 1))
    values = torch.randn(5, 3, 8)
    torch.testing.assert_close(found(values), wanted(values), atol=0.05, rtol=0)


def test_hooks_stay_and_shared_parts_stay_shared(tmp_path: Path) -> None:
    def make() -> Any:
        layer, table = nn.Linear(4, 4), nn.Embedding(10, 4)
        layer.register_forward_hook(lambda *told: told[2] + 100)
        return nn.ModuleDict({"a": layer, "b": layer, "c": table, "d": table})

    torch.manual_seed(5)
    state = {name: tensor.clone() for name, tensor in make().state_dict().items()}
    save_file(changed(state, ["int8"]), tmp_path / "weights")
    found = load_weights(tmp_path / "weights", make, ["int8"]).module
    assert found["a"] is found["b"]
    assert found["c"] is found["d"]
    assert found["c"].int8.dtype == torch.int8
    assert float(found["a"](torch.zeros(1, 4)).min()) > 90


def test_a_table_that_scales_its_rows_is_restored(tmp_path: Path) -> None:
    found, wanted = pair(tmp_path, lambda: nn.Sequential(nn.Embedding(10, 4, max_norm=0.5)))
    assert torch.equal(found(IDS), wanted(IDS))


def test_a_model_of_tables_alone_is_exported_or_says_why(tmp_path: Path) -> None:
    found, wanted = pair(tmp_path, lambda: nn.Sequential(nn.Embedding(10, 4)))
    told = export(found, IDS, tmp_path / "model.pt2", 1e-4)
    assert told == {"file": "model.pt2", "rows": "any"}
    program = torch.export.load(tmp_path / "model.pt2").module()
    torch.testing.assert_close(program(IDS[:3]), wanted(IDS[:3]))
