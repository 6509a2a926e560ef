"""Fewer and cheaper compilations: shapes that change no graph, kernels that are not tuned again."""

from airflow_ett.trainer.graphs.shapes import Padded, mark_dynamic, pad_to

__all__ = ["Padded", "mark_dynamic", "pad_to"]
