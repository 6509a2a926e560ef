"""``python -m tests.system.chaos --n 200 --seed 7``: the last line is the tally."""

import argparse
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.system.chaos.run import Run, speaker

parser = argparse.ArgumentParser(prog="python -m tests.system.chaos", description=__doc__)
parser.add_argument("--n", type=int, default=30, help="number of injections")
parser.add_argument("--seed", type=int, help="what is done to which training follows from it")
parser.add_argument("--keep", type=Path, help="an empty folder for Airflow and all its logs")
options = parser.parse_args()

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that Airflow is ended, too
seed = random.SystemRandom().randrange(10_000) if options.seed is None else options.seed
home = options.keep or Path(tempfile.mkdtemp(prefix="ett-chaos-"))
say = speaker()
say(f"chaos: {options.n} injections, seed {seed}, in {home}")
good, line = Run(home, count=options.n, seed=seed, say=say)()
if good and options.keep is None:
    shutil.rmtree(home)
print(line)
sys.exit(not good)
