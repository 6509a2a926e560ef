"""A workload that is over in no time."""

from ablation.workload import Workload

TINY = Workload(
    samples=6400,
    batch_size=64,
    tables=2,
    rows=50,
    dimension=4,
    layers=1,
    warmup_s=0.0,
    publish_s=0.1,
    every_s=0.2,
    retry_delay_s=0.1,
    expected_s=(100.0, 50.0),
    compiled=False,
)
