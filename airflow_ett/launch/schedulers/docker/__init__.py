"""The ``local_docker`` scheduler: TorchX's apps as containers of a Docker Engine, told of in full.

TorchX has one, too, and renders the request here as well. What that does not tell decides what
follows: a name is submitted once, and how a container ended (its exit code, the memory that it ran
out of, the cancel that was asked for) is known.
"""

from airflow_ett.launch.schedulers.docker.scheduler import NAME, Docker, create_scheduler

__all__ = ["NAME", "Docker", "create_scheduler"]
