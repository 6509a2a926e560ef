"""Copies in buffers: whole, of whatever tensors a state holds, and into the same memory again."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
from airflow_ett.trainer.buffers import Buffers, place_of  # noqa: E402


def copied(state: dict[str, Any], buffers: Buffers | None = None) -> Any:
    found, left = (buffers or Buffers(pinned=False)).copy(state, ())
    assert left == []
    return found


def test_a_copy_keeps_values_types_and_views() -> None:
    base = torch.arange(12.0)
    state = {
        "whole": base,
        "turned": base.view(3, 4).t(),
        "part": base[4:8],
        "complex": torch.view_as_complex(torch.ones(2, 2)).conj(),
        "negative": torch.ones(2, dtype=torch.complex64).conj().imag,
        "expanded": torch.ones(1).expand(5),
        "empty": torch.empty(0, 3),
        "sparse": torch.eye(3).to_sparse(),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "nested": OrderedDict(a=(torch.tensor(1), 2.5, None), b=["text", {"deep": {1, 2}}]),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    found = copied(state)
    for name in ("whole", "turned", "part", "complex", "negative", "expanded", "empty", "half"):
        assert torch.equal(found[name], state[name])
        assert found[name].dtype == state[name].dtype
    assert found["turned"].stride() == (1, 4)
    assert torch.equal(found["sparse"].to_dense(), torch.eye(3))
    assert torch.equal(found["parameter"], torch.ones(2))
    assert type(found["nested"]) is OrderedDict
    assert found["nested"] == state["nested"]
    assert found["nested"]["b"][1]["deep"] is not state["nested"]["b"][1]["deep"]
    base.fill_(0)
    assert found["whole"][11] == 11
    assert place_of(found["whole"]) == place_of(found["turned"]) == place_of(found["part"])


def test_buffers_are_used_again_and_freed_with_what_they_copied() -> None:
    buffers = Buffers(pinned=False)
    one, other = torch.ones(100), torch.ones(50)
    first = copied({"one": one, "other": other}, buffers)
    one.fill_(2)
    second = copied({"one": one}, buffers)
    assert place_of(first["one"]) == place_of(second["one"])
    assert second["one"][0] == 2
    assert place_of(copied({"one": one, "other": other}, buffers)["other"]) != place_of(
        first["other"]
    )


def test_only_what_has_a_buffer_is_put_off() -> None:
    buffers = Buffers(pinned=False)
    one = torch.ones(100)
    assert buffers.copy({"one": one}, {place_of(one)})[1] == []
    one.fill_(2)
    found, (pair,) = buffers.copy({"one": one, "same": one[:5]}, {place_of(one)})
    assert found["one"][0] == 1
    pair.buffer.copy_(pair.source)
    assert torch.equal(found["one"], one)
    assert torch.equal(found["same"], one[:5])


def test_a_sharded_tensor_is_copied_as_one() -> None:
    import torch.distributed as dist
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        sharded = distribute_tensor(torch.arange(8.0).view(4, 2), mesh, [Shard(0)])
        buffers = Buffers(pinned=False)
        first, found = (copied({"one": sharded}, buffers)["one"] for _ in range(2))
        assert type(found) is type(sharded)
        assert (found.placements, found.device_mesh) == (sharded.placements, mesh)
        assert place_of(found.to_local()) == place_of(first.to_local())
        sharded.to_local().fill_(7)
        assert torch.equal(found.full_tensor(), torch.arange(8.0).view(4, 2))
    finally:
        dist.destroy_process_group()


def test_buffers_for_a_gpu_are_pinned_and_no_longer_than_they_live(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Cuda:
        pinned: dict[int, int] = {}  # noqa: RUF012

        def cudaHostRegister(self, place: int, size: int, _: int) -> int:
            self.pinned[place] = size
            return 0

        def cudaHostUnregister(self, place: int) -> None:
            del self.pinned[place]

    cuda = Cuda()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "check_error", lambda code: None)
    buffers = Buffers(pinned=True)
    found = copied({"large": torch.ones(1 << 15), "small": torch.ones(3)}, buffers)
    assert cuda.pinned == {place_of(found["large"]): 1 << 17}
    copied({}, buffers)
    assert len(cuda.pinned) == 1  # the copy is still in use
    del found
    assert cuda.pinned == {}
