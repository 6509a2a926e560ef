"""The ablation: what each lever does to ETT%, by real trainings that fail twice.

Without arguments the quick form: three rows, three runs each. ``--full`` is the long one, with a
row for every lever; ``--sweep`` varies the inputs that one could choose to please, and is part of
``--full``. Runs that are over are kept in build/bench/ett: the same command goes on after a break.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import asdict

from ablation.campaign import Campaign, make_all
from ablation.kept import Kept, code, commit
from ablation.rows import ALL, BASELINE, FULL, QUICK, Row
from ablation.tables import Told, tell_ablation, tell_sweep
from ablation.workload import Workload
from report import FOLDER, conclude

QUICK_WORKLOAD = Workload(
    samples=600_000,
    batch_size=512,
    tables=8,
    rows=200_000,
    dimension=16,
    layers=4,
    warmup_s=8.0,
    publish_s=5.0,
    every_s=4.0,
    retry_delay_s=10.0,
    expected_s=(125.0, 57.0),
)
FULL_WORKLOAD = Workload(
    samples=24_000_000,
    batch_size=512,
    tables=8,
    rows=200_000,
    dimension=16,
    layers=4,
    warmup_s=10.0,
    publish_s=20.0,
    every_s=25.0,
    retry_delay_s=10.0,
    expected_s=(530.0, 390.0),
)
ENDS = (BASELINE, Row("all", ALL.levers))
QUICK_RUNS, FULL_RUNS, SWEEP_RUNS = 3, 2, 1
AIRFLOW_DELAY_S = 300.0
LEAST_ROWS = 2


def main() -> None:
    """Make the runs that are due, and tell what all runs show."""
    options = _parser().parse_args()
    if options.gpu:
        _need_gpu()
    os.environ["OMP_NUM_THREADS"] = "1"
    full, kept = options.full, Kept(FOLDER / "ett", code() + ("-gpu" if options.gpu else ""))
    gpus = 1 if options.gpu else 0
    campaign = Campaign(
        FULL_WORKLOAD if full else QUICK_WORKLOAD,
        FULL if full else QUICK,
        options.runs or (FULL_RUNS if full else QUICK_RUNS),
        kept,
        gpus=gpus,
    )
    swept = QUICK_WORKLOAD.sweep() if full or options.sweep else ()
    sweep = [
        (name, value, Campaign(workload, ENDS, SWEEP_RUNS, kept, gpus=gpus))
        for name, value, workload in swept
    ]
    wanted = [] if options.sweep and not full else [(campaign, _chosen(campaign, options.rows))]
    wanted += [(other, ENDS) for _, _, other in sweep]
    _tell_inputs(campaign.workload)
    make_all(wanted)
    _tell(campaign, sweep, full=full)


def _tell(campaign: Campaign, sweep: Sequence[tuple[str, str, Campaign]], *, full: bool) -> None:
    comparable = BASELINE.name in campaign.runs() and len(campaign.runs()) >= LEAST_ROWS
    told = tell_ablation(campaign, full=full) if comparable else Told({}, [])
    table = tell_sweep(sweep)
    print()
    content = {
        "form": "full" if full else "quick",
        "commit": commit(),
        "workload": asdict(campaign.workload),
        **told.content,
        "sweep": table,
    }
    conclude("ett", content, told.targets)
    if told.content and not all(same["holds"] for same in told.content["equal"].values()):
        raise SystemExit("the rows cannot be compared: see what is not equal in them")


def _tell_inputs(workload: Workload) -> None:
    size = workload.tables * workload.rows * workload.dimension * 4 / 1e6
    delay = workload.retry_delay_s
    print(
        f"{workload.samples:,} samples in batches of {workload.batch_size}, tables of {size:,.0f} "
        f"MB, {workload.warmup_s:g} s of data warm-up, {workload.publish_s:g} s of publishing, two "
        f"SIGKILLs near a third and two thirds.\nEach attempt is on a host of its own; each run's "
        f"caches are empty at its start, but where the DAG had an earlier job. Without its levers "
        f"it saves every {workload.every_s:g} s and waits for that, and Airflow retries after "
        f"{delay:g} s (its default of {AIRFLOW_DELAY_S:g} s over {AIRFLOW_DELAY_S / delay:g})."
    )


def _chosen(campaign: Campaign, names: str | None) -> Sequence[Row]:
    if names is None:
        return campaign.rows
    wanted = [name.strip() for name in names.split(";")]
    known = {row.name.removeprefix("+ "): row for row in campaign.rows}
    if unknown := [name for name in wanted if name not in known]:
        raise SystemExit(f"no row {', '.join(unknown)}; there are {'; '.join(known)}")
    return [known[name] for name in wanted]


def _need_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        raise SystemExit(
            f"--gpu needs an NVIDIA GPU, its driver and a build of torch for CUDA; torch "
            f"{torch.__version__} sees none here. Nothing was measured."
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--full", action="store_true", help="a row for every lever, and the sweep")
    add("--sweep", action="store_true", help="only the sweep, or with --full that too")
    add("--gpu", action="store_true", help="train on a GPU")
    add("--runs", type=int, help=f"runs of each row; {QUICK_RUNS}, and {FULL_RUNS} with --full")
    add("--rows", help="make runs of these rows alone: names without their +, between semicolons")
    return parser


if __name__ == "__main__":
    main()
