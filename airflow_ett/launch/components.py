"""Our TorchX components.

TorchX makes a command line of their signatures and docstrings: annotations must be real types (no
postponed evaluation), and ``Args`` is the form in which it reads help texts.
"""

import re
import shlex

import torchx
from torchx.components.structured_arg import StructuredJArgument, StructuredNameArgument
from torchx.specs import AppDef, Role, macros, parse_mounts
from torchx.specs import resource as find_resource

from airflow_ett.launch import grace

ROLE = "trainer"

_AGENT = "airflow_ett.trainer.agent"


def train(
    *script_args: str,
    script: str | None = None,
    m: str | None = None,
    image: str = torchx.IMAGE,
    name: str = "/",
    h: str | None = None,
    cpu: int = 2,
    gpu: int = 0,
    memMB: int = 1024,
    j: str = "1x1",
    env: dict[str, str] | None = None,
    metadata: dict[str, str] | None = None,
    max_retries: int = 0,
    rdzv_port: int = 29500,
    mounts: list[str] | None = None,
    grace_s: int = 30,
    on_hang: str = "record",
) -> AppDef:
    """Train with one agent per node, which records how every rank ends and keeps a heartbeat.

    Takes dist.torchrun's parameters as far as they mean something to the agent.

    Args:
        script_args: arguments of the script or module
        script: path of the script to run
        m: name of the module to run
        image: image, or for local schedulers a folder
        name: experiment and run as in dist.torchrun
        h: named resource; takes precedence over cpu, gpu and memMB
        cpu: processors per node
        gpu: GPUs per node
        memMB: memory per node in MB
        j: nodes x processes per node; a number alone means processes on one node, or nodes with h
        env: variables for the trainer
        metadata: metadata for the scheduler
        max_retries: how often the scheduler may restart the app
        rdzv_port: port on the first node, used when there are several
        mounts: mounts as in dist.torchrun
        grace_s: seconds that a trainer gets between SIGTERM and SIGKILL
        on_hang: record or end a training that stands still; an ended one is launched again
    """
    run = StructuredNameArgument.parse_from(name=name, m=m, script=script)
    nodes, processes = _shape(j, h)
    target = ["--script", script] if script else ["--module", str(m)]
    options = ["--nproc", str(processes), "--grace", str(grace_s), *_on_hang(on_hang)]
    entrypoint, args = _command(nodes, options, [*target, "--", *script_args], rdzv_port)
    role = Role(
        name=ROLE,
        image=image,
        entrypoint=entrypoint,
        args=args,
        env=dict(env or {}),
        num_replicas=nodes,
        max_retries=max_retries,
        resource=find_resource(cpu=cpu, gpu=gpu, memMB=memMB, h=h),
        port_map={"c10d": rdzv_port},
        mounts=parse_mounts(mounts) if mounts else [],
    )
    grace.ask(role, grace_s)
    return AppDef(name=run.run_name, roles=[role], metadata=dict(metadata or {}))


def _shape(j: str, h: str | None) -> tuple[int, int]:
    """Return nodes and processes per node. Raises ``ValueError``."""
    if h is not None and j.isdigit():
        j = str(StructuredJArgument.parse_from(h, j))
    match = re.fullmatch(r"(?:([1-9]\d*)x)?([1-9]\d*)", j)
    if match is None:
        raise ValueError(f"j: {j!r} is not of the form NODESxPROCESSES (2x8) or PROCESSES (8)")
    return int(match[1] or 1), int(match[2])


def _on_hang(what: str) -> list[str]:
    """Return the agent's options for a stall. Raises ``ValueError``."""
    if what not in ("record", "end"):
        raise ValueError(f"on_hang: {what!r} is neither record nor end")
    return ["--on-hang", what] if what != "record" else []  # older images' agents do not know it


def _command(nodes: int, options: list[str], target: list[str], port: int) -> tuple[str, list[str]]:
    """Return entry point and arguments of one node's agent."""
    agent = ["-m", _AGENT, *options]
    if nodes == 1:
        return "python", [*agent, *target]
    # Only a shell can read the variable whose name TorchX fills in; "$$" becomes "$" there.
    address = f"$${{{macros.rank0_env}:=localhost}}"
    place = f"--nnodes {nodes} --node-rank {macros.replica_id} --master-port {port}"
    line = f"exec python {shlex.join(agent)} {place} --master-addr {address} {shlex.join(target)}"
    return "bash", ["-c", line]
