"""Run a trainer as on a host of its own: ``host.py SCRATCH MODULE ARGUMENTS...``.

What a trainer leaves in its host's temporary folder, torch's compile caches for one, is not there
for the next attempt, which a cluster starts elsewhere.
"""

from __future__ import annotations

import os
import runpy
import sys
import tempfile


def main(scratch: str, module: str, *arguments: str) -> None:
    """Run the module as the main program, with a temporary folder that nobody has used."""
    os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="host-", dir=scratch)
    tempfile.tempdir = None  # it has been asked for already
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
