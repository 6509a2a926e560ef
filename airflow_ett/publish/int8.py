"""An int8 snapshot as a model: its layers compute in int8, its tables are looked up in int8.

Only plain ones of torch's: what derives from them may use the weight in its own way. They stay the
objects that they are, with their hooks, and whoever asks for their weight is given it in full.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.ao.nn.quantized import dynamic
from torch.nn import functional

_SCALE = ".scale"


def restored(module: Any, stored: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the weights of an int8 file in their own type; those that stay int8 without values."""
    stay = {weight for weight, _ in _plain(module)}
    for name, tensor in stored.items():
        if name.endswith(_SCALE) and _is_quantised(stored, name.removesuffix(_SCALE)):
            continue
        if not _is_quantised(stored, name):
            yield name, tensor
        elif name in stay:
            yield name, torch.empty(tensor.shape, device="meta")
        else:
            yield name, _values(tensor, stored[name + _SCALE])


def quantise(module: Any, stored: Mapping[str, Any]) -> None:
    """Give the layers and the tables of a model their weights in int8."""
    for weight, part in _plain(module):
        if _is_quantised(stored, weight):
            dtype = part.weight.dtype
            del part.weight
            part.__class__ = _CLASSES[type(part)]
            part.take(stored[weight], stored[weight + _SCALE], dtype)


def _is_quantised(stored: Mapping[str, Any], name: str) -> bool:
    tensor = stored.get(name)
    return name + _SCALE in stored and tensor is not None and tensor.dtype == torch.int8


def _plain(module: Any) -> Iterator[tuple[str, Any]]:
    """Yield what can work in int8, by the names of its weight."""
    for name, part in module.named_modules(remove_duplicate=False):
        table = type(part) in (nn.Embedding, nn.EmbeddingBag) and part.max_norm is None
        if table or (type(part) is nn.Linear and part.weight.dtype == torch.float32):
            yield f"{name}.weight".lstrip("."), part


def _values(int8: Any, scale: Any) -> Any:
    return int8.float().mul_(scale.reshape(-1, 1))


class _Linear(nn.Linear):  # type: ignore[misc]  # torch is not typed here
    def take(self, int8: Any, scale: Any, _: Any) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.quantize_per_tensor")
            packed = torch._make_per_channel_quantized_tensor(
                int8, scale.double(), torch.zeros(len(scale), dtype=torch.long), 0
            )
            self.int8 = dynamic.Linear(self.in_features, self.out_features)
            self.int8.set_weight_bias(packed, self.bias)

    @property
    def weight(self) -> Any:
        return self.int8.weight().dequantize()

    def forward(self, input: Any) -> Any:  # torch's name
        return self.int8(input)


class _Table:
    """A table that stays as it is in the file, mapped."""

    def take(self, int8: Any, scale: Any, dtype: Any) -> None:
        self.int8, self.scale, self.dtype = int8, scale, dtype

    @property
    def weight(self) -> Any:
        return _values(self.int8, self.scale).to(self.dtype)

    def rows(self, ids: Any) -> Any:
        values = _values(functional.embedding(ids, self.int8), self.scale[ids])
        return values.to(self.dtype)


class _Embedding(_Table, nn.Embedding):  # type: ignore[misc]
    def forward(self, input: Any) -> Any:
        return self.rows(input.reshape(-1)).view(*input.shape, self.embedding_dim)


class _EmbeddingBag(_Table, nn.EmbeddingBag):  # type: ignore[misc]
    def forward(self, input: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        ids, places = input.unique(return_inverse=True)
        padding = None
        if self.padding_idx is not None and bool((ids == self.padding_idx).any()):
            padding = int((ids < self.padding_idx).sum())
        return functional.embedding_bag(
            places,
            self.rows(ids),
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=padding,
        )


_CLASSES = {nn.Linear: _Linear, nn.Embedding: _Embedding, nn.EmbeddingBag: _EmbeddingBag}
