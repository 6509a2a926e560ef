"""``python -m tests.system.chaos --n 200 --seed 7``: the last line is the tally.

With ``--scheduler slurm`` the trainings run on a real Slurm of three nodes.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.slurm.cluster import missing
from tests.system.chaos.plan import LOCAL, SLURM, plan
from tests.system.chaos.run import Run, speaker

parser = argparse.ArgumentParser(prog="python -m tests.system.chaos", description=__doc__)
parser.add_argument("--n", type=int, default=30, help="number of injections")
parser.add_argument("--seed", type=int, help="what is done to which training follows from it")
parser.add_argument("--scheduler", choices=(LOCAL, SLURM), default=LOCAL)
parser.add_argument("--ssh", action="store_true", help="reach Slurm by ssh")
parser.add_argument("--keep", type=Path, help="an empty folder for Airflow and all its logs")
options = parser.parse_args()
if options.scheduler == SLURM and (why_not := missing()):
    parser.error(f"no Slurm: {why_not}")

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that Airflow is ended, too
seed = random.SystemRandom().randrange(10_000) if options.seed is None else options.seed
home = options.keep or Path(tempfile.mkdtemp(prefix="ett-chaos-"))
say = speaker()
say(f"chaos: {options.n} injections on {options.scheduler}, seed {seed}, in {home}")
courses = plan(seed, options.n, options.scheduler)
good, line = Run(
    home, courses=courses, seed=seed, say=say, scheduler=options.scheduler, by_ssh=options.ssh
)()
if good and options.keep is None:
    shutil.rmtree(home)
print(line)
sys.exit(not good)
