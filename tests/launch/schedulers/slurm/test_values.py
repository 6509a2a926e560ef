"""Values that no Slurm takes are told by name before anything is submitted; others pass.

What passes here was taken by the ``sbatch`` of Slurm 22.05.8, what does not was refused by it.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from airflow_ett.errors import ConfigurationError
from airflow_ett.launch.preparation import validate_static
from airflow_ett.launch.schedulers.slurm.values import problem

GOOD: dict[str, tuple[Any, ...]] = {
    "time": ("90", "1:30", "1:2:3", "2-3", "2-3:4", "2-3:4:5", "-1", "infinite", "UNLIMITED"),
    "mem": ("0", "64", "64G", "64g", "64GB", "10m", "5T"),
    "mail_type": ("END,FAIL", "end", "END, FAIL", "ALL", "NONE", "TIME_LIMIT_90", "ARRAY_TASKS"),
    "exclude": ("n1", "n[1-2,07],gpu-a", "n1 n2", "n1, n2"),
    "nodelist": ("n1", "/shared/nodes"),
    "grace_s": (0, 600),
    "cwd": ("/shared/my work",),
}

BAD: dict[str, tuple[Any, ...]] = {
    "time": ("", " 90", "1d", "12h", "2-3:4:5:6", "1-2-3", "tomorrow"),
    "mem": ("", "64 G", "1.5G", "5P", "10KiB", "-1"),
    "mail_type": ("", "NOPE", "END,NOPE", "END;FAIL"),
    "exclude": ("", "n[1-2", "--nodes"),
    "nodelist": ("n[1-2",),
    "grace_s": (-1,),
    "cwd": ("", "here", "~/here"),
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in GOOD.items() for v in values])
def test_what_slurm_takes_passes(name: str, value: Any) -> None:
    assert problem({name: value}) is None


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in BAD.items() for v in values])
def test_what_slurm_refuses_is_told_when_the_dag_is_parsed(name: str, value: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"cfg: {name}: .*{re.escape(str(value))}"
    ) as refused:
        validate_static("train", "slurm", {name: value})
    assert refused.value.parameter == "cfg"


def test_a_template_is_left_for_the_run() -> None:
    validate_static("train", "slurm", {"time": "{{ params.time }}"})
