"""A trainer without PyTorch: counts steps, keeps its own tiny checkpoint of the cursor.

It proves by exclusive files that no two trainers of a job ever run side by side.
"""

import argparse
import os
import time
from pathlib import Path

from airflow_ett.trainer import Session

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("--step-s", type=float, default=0.05)
parser.add_argument("--place", type=Path, required=True)
parser.add_argument("--fail-first-at", type=int, default=0)
parser.add_argument("--linger-s", type=float, default=0, help="time that the end takes")
options = parser.parse_args()

options.place.mkdir(parents=True, exist_ok=True)
with (options.place / "starts").open("a") as starts:
    starts.write(f"{os.getpid()} {time.time_ns()}\n")
position = options.place / "cursor"
start = int(position.read_text()) if position.exists() else 0
lease = options.place / "lease"

with Session() as ett:
    print(f"training from {start}", flush=True)
    for step in ett.track(range(start, options.steps), cursor=start):
        time.sleep(options.step_s)
        holder = lease.read_text() if lease.exists() else ""
        if holder and holder != str(os.getpid()) and Path(f"/proc/{holder}").exists():
            with (options.place / "duplicates").open("a") as duplicates:
                duplicates.write(f"{holder} {os.getpid()}\n")
        lease.write_text(str(os.getpid()))
        position.write_text(str(step + 1))
        ett.step(step + 1 - start)
        if start == 0 and step + 1 == options.fail_first_at:
            raise ValueError("induced failure")
    time.sleep(options.linger_s)
