"""A published version as a model that scores, its weights mapped and not copied."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from airflow_ett.errors import PublishError
from airflow_ett.publish import load
from airflow_ett.publish.loading import load_weights
from tests.publish import zoo

pytestmark = pytest.mark.torch

ZOO = "tests.publish.zoo"


def write(folder: Path, model: Any, factory: str, transforms: Sequence[str] = ()) -> Path:
    """Write a version of a model as publishing does, without trying it."""
    weights = folder / "model.safetensors"
    save_file(changed(model.state_dict(), transforms), weights)
    manifest = {
        "factory": f"{ZOO}:{factory}",
        "transforms": list(transforms),
        "files": {weights.name: {"bytes": weights.stat().st_size}},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def changed(state: dict[str, Any], transforms: Sequence[str]) -> dict[str, Any]:
    """Return a state after the transforms, by their definition."""
    stored: dict[str, Any] = {}
    for name, tensor in state.items():
        real = tensor.is_floating_point()
        if "int8" in transforms and real and tensor.ndim == 2:
            scale = tensor.abs().amax(dim=1) / 127
            stored[name] = (tensor / scale[:, None]).round().to(torch.int8)
            stored[f"{name}.scale"] = scale
        elif "bfloat16" in transforms and real:
            stored[name] = tensor.to(torch.bfloat16)
        else:
            stored[name] = tensor.clone()
    return stored


def scores(model: Any, inputs: Any) -> Any:
    with torch.no_grad():
        return model(**inputs) if isinstance(inputs, dict) else model(inputs)


def test_it_scores_as_the_trained_model(tmp_path: Path) -> None:
    trained = zoo.trained(zoo.ranker())
    model = load(write(tmp_path, trained, "ranker"))
    torch.testing.assert_close(scores(model, zoo.batch()), scores(trained, zoo.batch()))
    assert not model.training
    assert not any(p.requires_grad for p in model.parameters())


def test_the_weights_are_mapped_and_the_file_is_safe_from_the_model(tmp_path: Path) -> None:
    trained = zoo.trained(zoo.ranker())
    write(tmp_path, trained, "ranker")
    before = (tmp_path / "model.safetensors").read_bytes()
    loaded = load_weights(tmp_path / "model.safetensors", f"{ZOO}:ranker", ())
    assert loaded.in_memory is None
    weight = loaded.module.table.weight
    mapped = [line.split()[0] for line in maps() if line.endswith("model.safetensors")]
    bounds = [[int(end, 16) for end in span.split("-")] for span in mapped]
    assert any(begin <= weight.data_ptr() < end for begin, end in bounds)
    with torch.no_grad():
        weight.zero_()
    assert (tmp_path / "model.safetensors").read_bytes() == before


def maps() -> list[str]:
    return Path("/proc/self/maps").read_text().splitlines()


def test_a_version_may_name_its_files_otherwise(tmp_path: Path) -> None:
    """As in an object store, whose folders are copied as they are."""
    trained = zoo.trained(zoo.ranker())
    weights = write(tmp_path, trained, "ranker") / "model.safetensors"
    weights.rename(tmp_path / "0123-model.safetensors")
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["files"]["model.safetensors"]["path"] = "0123-model.safetensors"
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    torch.testing.assert_close(scores(load(tmp_path), zoo.batch()), scores(trained, zoo.batch()))


def test_another_factory_may_be_given(tmp_path: Path) -> None:
    trained = zoo.trained(zoo.ranker())
    write(tmp_path, trained, "no_module")
    for factory in (zoo.ranker, f"{ZOO}:ranker"):
        model = load(tmp_path, factory)
        torch.testing.assert_close(scores(model, zoo.batch()), scores(trained, zoo.batch()))


@pytest.mark.parametrize(
    ("factory", "why"),
    [
        ("remembering", "kept is not in the checkpoint"),
        ("scaled", "Tensor.item() cannot be called on meta"),
    ],
)
def test_what_needs_values_is_built_in_memory_and_says_so(
    tmp_path: Path, factory: str, why: str
) -> None:
    trained = zoo.trained(getattr(zoo, factory)())
    write(tmp_path, trained, factory)
    loaded = load_weights(tmp_path / "model.safetensors", f"{ZOO}:{factory}", ())
    assert loaded.in_memory is not None
    assert why in loaded.in_memory
    torch.testing.assert_close(scores(loaded.module, zoo.values()), scores(trained, zoo.values()))


@pytest.mark.parametrize("factory", ["buffered", "hiding"])
def test_what_is_no_weight_may_be_there_from_the_factory(tmp_path: Path, factory: str) -> None:
    trained = zoo.trained(getattr(zoo, factory)())
    write(tmp_path, trained, factory)
    loaded = load_weights(tmp_path / "model.safetensors", f"{ZOO}:{factory}", ())
    assert loaded.in_memory is None
    torch.testing.assert_close(scores(loaded.module, zoo.values()), scores(trained, zoo.values()))


def test_models_that_other_threads_make_meanwhile_have_their_values(tmp_path: Path) -> None:
    found = []

    def make() -> Any:
        thread = threading.Thread(target=lambda: found.append(zoo.ranker()))
        thread.start()
        thread.join()
        return zoo.ranker()

    write(tmp_path, zoo.ranker(), "ranker")
    assert load_weights(tmp_path / "model.safetensors", make, ()).in_memory is None
    assert not any(tensor.is_meta for tensor in found[0].parameters())


@pytest.mark.parametrize("given", ["numbers", "tensors"])
def test_a_state_that_is_no_weight_stays_the_factorys(tmp_path: Path, given: str) -> None:
    """Distributed checkpoints store tensors within it under names of their own."""
    trained = zoo.Extra().eval()
    tensors = {"layer.weight": trained.layer.weight.data, "layer.bias": trained.layer.bias.data}
    if given == "tensors":
        tensors["_extra_state.one"] = torch.ones(2)
    save_file(tensors, tmp_path / "weights")
    model = load_weights(tmp_path / "weights", zoo.Extra, ()).module
    assert model.factor == 2
    torch.testing.assert_close(scores(model, zoo.values()), scores(trained, zoo.values()))


def test_a_compiled_model_is_loaded_as_it_was_written(tmp_path: Path) -> None:
    trained = zoo.trained(zoo.ranker())
    model = load(write(tmp_path, trained, "ranker"), lambda: torch.compile(zoo.ranker()))
    assert type(model) is zoo.Ranker
    torch.testing.assert_close(scores(model, zoo.batch()), scores(trained, zoo.batch()))


def test_complex_numbers_survive_a_cast(tmp_path: Path) -> None:
    trained = zoo.trained(zoo.Turning())
    model = load(write(tmp_path, trained, "Turning", ["bfloat16"]))
    assert model.turns.dtype == torch.complex64
    found, wanted = scores(model, zoo.values()), scores(trained, zoo.values())
    assert (found - wanted).abs().max() < 2e-2 * wanted.abs().max()


def test_after_a_cast_it_computes_in_that_type(tmp_path: Path) -> None:
    trained = zoo.trained(zoo.ranker())
    model = load(write(tmp_path, trained, "ranker", ["bfloat16"]))
    dtypes = {tensor.dtype for tensor in model.state_dict().values()}
    assert dtypes == {torch.bfloat16, torch.int64}  # BatchNorm counts its batches
    found = scores(model, zoo.batch())
    assert found.dtype == torch.bfloat16
    wanted = scores(trained, zoo.batch())
    assert (found.float() - wanted).abs().max() < 2e-2 * wanted.abs().max()


def test_what_a_cast_lacks_is_cast_too(tmp_path: Path) -> None:
    trained = zoo.trained(zoo.buffered())
    model = load(write(tmp_path, trained, "buffered", ["bfloat16"]))
    assert model.kept.dtype == torch.bfloat16
    assert scores(model, zoo.values()).dtype == torch.bfloat16


def test_without_a_cast_the_factory_says_in_which_type(tmp_path: Path) -> None:
    trained = zoo.trained(zoo.half_ranker())
    model = load(write(tmp_path, trained, "ranker"))
    assert scores(model, zoo.batch()).dtype == torch.float32


def test_int8_layers_compute_in_int8_and_all_else_in_its_own_type(tmp_path: Path) -> None:
    trained = zoo.trained(zoo.ranker())
    model = load(write(tmp_path, trained, "ranker", ["int8"]))
    assert model.layer.int8.weight().dtype == torch.qint8
    assert type(model.top) is zoo.Doubling
    assert model.table.weight.dtype == torch.float32
    wanted = scores(trained, zoo.batch())
    difference = (scores(model, zoo.batch()) - wanted).abs().max()
    assert 0 < difference < 0.02 * wanted.abs().max()


def test_int8_of_a_model_in_another_type_is_restored(tmp_path: Path) -> None:
    trained = zoo.trained(zoo.half_ranker())
    model = load(write(tmp_path, trained, "half_ranker", ["int8"]))
    assert model.layer.weight.dtype == torch.bfloat16
    assert scores(model, {**zoo.batch(), "weight": torch.ones(7)}).isfinite().all()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "manifest.json").unlink(), "holds no published version"),
        (lambda folder: (folder / "manifest.json").write_text("{}"), "holds no published version"),
        (lambda folder: (folder / "model.safetensors").unlink(), "holds no published version"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"half"), "has 4 bytes instead"),
    ],
)
def test_what_is_no_whole_version_is_refused(tmp_path: Path, damage: Any, message: str) -> None:
    write(tmp_path, zoo.ranker(), "ranker")
    damage(tmp_path)
    with pytest.raises(PublishError, match=message):
        load(tmp_path)


def test_a_factory_of_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PublishError, match="returned str, not a torch"):
        load(write(tmp_path, zoo.ranker(), "no_module"))


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="Missing key"):
        load(write(tmp_path, zoo.ranker(), "scaled"))


def test_no_torch_is_needed_to_import_it() -> None:
    code = "from airflow_ett.publish import load; import sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
