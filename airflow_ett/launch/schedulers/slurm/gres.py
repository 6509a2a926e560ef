"""How many GPUs of a node Slurm's ``--gres`` asks for. Pure."""

from __future__ import annotations


def gpus(gres: str) -> int | None:
    """Return the number, None where no GPU is named or the text is not of Slurm's form.

    Entries are ``gpu``, ``gpu:8``, ``gpu:a100`` or ``gpu:a100:8``, separated by commas.
    """
    counts = [_count(parts) for entry in gres.split(",") if (parts := entry.split(":"))[0] == "gpu"]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def contradiction(gres: str | None, gpu: int) -> str | None:
    """Return in words that ``gres`` asks for other than ``gpu`` GPUs a node, None if it does not.

    Jobs would hold other accelerators than those they are counted with.
    """
    asked = gpus(gres) if gres else None
    if asked is None or asked == max(0, gpu):
        return None
    return (
        f"gres={gres} asks for {asked} GPUs a node, the component or its resource for "
        f"{max(0, gpu)} (gpu), by which accelerators are counted: let both ask for as many, such "
        f"as with --gpu {asked} in component_args"
    )


def _count(parts: list[str]) -> int | None:
    """Return the count of one entry; the last part is a type where it is no number."""
    last = parts[-1]
    if len(parts) > 1 and last.isdecimal():
        return int(last) if len(parts) <= 3 else None
    return 1 if len(parts) <= 2 and last else None
