"""Publish a trained model from its anchor checkpoint, on a CPU: ``ModelPublishOperator``."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_ett import config
from airflow_ett.errors import ConfigurationError, PublishError
from airflow_ett.events import Event, Kind, slug
from airflow_ett.hooks.ingest import BestEffortIngest
from airflow_ett.launch.root import Root

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context


class ModelPublishOperator(BaseOperator):
    """Write a serving snapshot of a checkpoint into a registry, checked before it is visible.

    An ordinary CPU task: the accelerators of the training are free by the time it runs. The work is
    done by ``python -m airflow_ett.publish`` in a process of its own, so that Airflow needs no
    PyTorch. Publishing the same checkpoint again finds it done.

    Returns ``{version, uri, digest}``, each also as an XCom of its own.

    :param checkpoint: the training task's output (its dictionary), or a checkpoint's URI.
    :param model: ``package.module:factory`` of the model.
    :param registry: folder of the registry.
    :param name: the model's name in the registry; default: the task's id.
    :param version: default: from the checkpoint's cursor and digest.
    :param python: the interpreter that has PyTorch; default: the worker's own.
    """

    template_fields: Sequence[str] = ("checkpoint", "model", "registry", "name", "version")
    ui_color = "#60947c"

    def __init__(
        self,
        *,
        checkpoint: str | Mapping[str, Any],
        model: str,
        registry: str,
        name: str | None = None,
        version: str | None = None,
        python: str = sys.executable,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("multiple_outputs", True)
        super().__init__(**kwargs)
        self.checkpoint = checkpoint
        self.model = model
        self.registry = registry
        self.name = name
        self.version = version
        self.python = python
        if "{" not in model and model.count(":") != 1:
            raise ConfigurationError("model", f"must read package.module:factory, not {model!r}")

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the publisher and hand on what it published."""
        source = (
            {"checkpoint": self.checkpoint} if isinstance(self.checkpoint, str) else self.checkpoint
        )
        checkpoint = source.get("checkpoint")
        if not checkpoint:
            raise ConfigurationError("checkpoint", f"names no checkpoint: {self.checkpoint!r}")
        published = {"checkpoint": str(checkpoint), **self._run(str(checkpoint))}
        if source.get("run_dir"):
            self._record(str(source["run_dir"]), str(source["job"]), published, context)
        return {name: published[name] for name in ("version", "uri", "digest")}

    def _run(self, checkpoint: str) -> dict[str, Any]:
        command = [self.python, "-m", "airflow_ett.publish", "--checkpoint", checkpoint]
        command += ["--model", self.model, "--registry", self.registry]
        command += ["--name", self.name or self.task_id]
        if self.version:
            command += ["--version", self.version]
        lines: list[str] = []
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line.rstrip())
                self.log.info("%s", line.rstrip())
        if process.returncode != 0:
            raise PublishError(
                f"The publisher ended with exit code {process.returncode}; nothing became visible "
                f"in {self.registry}. Its last words: {' / '.join(lines[-3:])}"
            )
        # Libraries may print after the result, which is the only line that is a JSON object.
        result = next((line for line in reversed(lines) if line.startswith("{")), None)
        if result is None:
            raise PublishError(f"The publisher of {checkpoint} ended, but told no result.")
        published: dict[str, Any] = json.loads(result)
        return published

    def _record(self, place: str, job: str, published: Mapping[str, Any], context: Context) -> None:
        """Tell the training's log, so that the report shows what became of it."""
        ti = context["ti"]
        name = f"publish-{slug(ti.task_id)}-{ti.try_number}-{time.time_ns()}"
        told = {key: published[key] for key in ("version", "uri", "digest", "checkpoint")}
        told |= {"begin": published["begin_ns"], "end": published["end_ns"]}
        event = Event(job, name, 0, time.time_ns(), Kind.PUBLISHED, data=told)
        Root.of(config.load()).open(place).append(f"launcher/{name}.jsonl", [event])
        BestEffortIngest(place)(now=True)
