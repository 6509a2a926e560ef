"""The run options of ``local_docker``: TorchX's own."""

from __future__ import annotations

from torchx.schedulers.docker_scheduler import DockerScheduler
from torchx.specs import runopts

RUN_OPTIONS: runopts = DockerScheduler("options").run_opts()
"""Made once: TorchX reads them from the source, which is slow and not safe in threads."""
