"""The ``slurm`` scheduler: TorchX's apps as jobs of a Slurm cluster, told of in full.

TorchX has one, too, but what that reads from Slurm is often wrong: see ``docs/slurm.md``.
"""

from airflow_ett.launch.schedulers.slurm.scheduler import NAME, Slurm, create_scheduler

__all__ = ["NAME", "Slurm", "create_scheduler"]
