"""Why torch compiled a graph anew, read from its own words, and what to write so that it doesn't.

Torch guards each graph by what it assumed of its inputs, and names the first guard that failed. Its
words are those of torch 2.13; what is not understood is handed on as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_ID = re.compile(r"!?[\d/_]+: ")
_LOCAL = re.compile(r"\bL\['(\w+)'\]")
"""A local variable, as an older torch has it."""
_MOST = 2000
"""As much of a reason is read: anybody may write an event."""
_NAME = r"(?P<name>.+?)"
_WAS = r"(?P<old>.+?)"
_MARK = "mark_dynamic(batch)  # before the compiled call, in every step"
_ENV = 'env={{"TORCH_COMPILE_DYNAMIC_SOURCES": "{source}"}}  # of the operator'
_PAD = "pad_to(batch, {most})  # and leave the added rows out of the loss"
_BRANCH = "what the code decides by: {name}"
_EACH_SIDE = "decide outside the compiled code, or accept one graph for each side"
_ONE_MODE = "evaluate with the model that is not compiled, or accept one graph for each"


class Change(NamedTuple):
    """What was not as it had been when the graph was compiled.

    ``what`` says it in words, ``values`` are those it had as far as torch tells, ``add`` the lines
    that help (``{most}`` stands for the largest value), the best first. ``source`` is torch's name
    for it where ``TORCH_COMPILE_DYNAMIC_SOURCES`` helps, ``""`` elsewhere. ``avoidable`` says
    whether one graph can do for all; where each needs its own it is False.
    """

    kind: str
    what: str
    values: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    source: str = ""
    avoidable: bool = True


class _Rule(NamedTuple):
    """How to read a guard of some form; ``note`` stands in the code and hints that torch adds."""

    kind: str
    pattern: str
    what: str
    add: tuple[str, ...] = ()
    avoidable: bool = True
    note: str = ""


def _size(add: tuple[str, ...], *, name: str = _NAME, dim: str = r"\d+") -> _Rule:
    return _Rule(
        "size",
        rf"tensor '{name}' size mismatch at index (?P<dim>{dim})\. "
        r"expected (?P<old>\d+), actual (?P<new>\d+)",
        "size of dimension {dim} of {name}",
        add,
    )


def _few_rows(limit: str, what: str) -> _Rule:
    """Torch takes sizes 0 and 1 for special; inductor may set a limit above."""
    return _Rule(
        "few_rows",
        rf"2 <= {_NAME}\.size\(\)\[0\]{limit}$",
        what,
        ("DataLoader(..., drop_last=True)", "pad_to(batch, size)  # one size for all batches"),
        note="0/1 specialization",
    )


_RULES = (
    _Rule(
        "parameter",
        rf"tensor '{_NAME}' size mismatch at index (?P<dim>\d+)\. expected (?P<old>\d+), "
        r"actual (?P<new>\d+)\. Guard failed on a parameter",
        "size of the parameter {name}",
        ("torch._dynamo.config.force_parameter_static_shapes = False",),
    ),
    _size((_ENV,), name=r"(?P<name>.*?(?:\._|___).*?)"),  # of the model, or computed by the code
    _size((_MARK, _ENV, _PAD), dim="0"),
    _size(("mark_dynamic(batch, dim={dim})  # before the compiled call, in every step", _ENV)),
    _Rule(
        "branch",
        rf"{_NAME}(?: == (?P<old>-?\d+))?$",
        _BRANCH,
        (_EACH_SIDE,),
        avoidable=False,
        note="in evaluate_expr",
    ),
    _few_rows("", "{name} has one row, or none"),
    _few_rows(r" <= (?P<limit>\d+)", "{name} has one row or none, or more than {limit}"),
    _Rule(
        "equal_sizes",
        rf"{_NAME}$",
        "sizes that were equal at first: {name}",
        ("torch.fx.experimental._config.use_duck_shape = False",),
        note="duck sizing",
    ),
    _Rule(
        "branch",
        r"(?P<name>.*\.(?:size|stride)\(\)\[\d+\].*)",
        _BRANCH,
        (_EACH_SIDE,),
        avoidable=False,
    ),
    _Rule(
        "marks",
        "_has_dynamo_dim_marking is (?:present|absent)",
        "batches are marked in some steps alone",
        ("mark_dynamic(batch)  # in every step: the first, the evaluation's, fast_batch's",),
    ),
    _Rule(
        "dtype",
        rf"tensor '{_NAME}' dtype mismatch\. expected (?P<old>\w+), actual (?P<new>\w+)",
        "dtype of {name}",
        ("batch.to(dtype)  # the same one in every step, before the compiled call",),
    ),
    _Rule(
        "gradient",
        rf"tensor '{_NAME}' requires_grad mismatch\. expected requires_grad=(?P<old>\d)",
        "whether {name} requires a gradient",
        ("batch.requires_grad_(...)  # the same in every step",),
    ),
    _Rule(
        "strides",
        rf"tensor '{_NAME}' stride mismatch at index \d+\. expected (?P<old>-?\d+), "
        r"actual (?P<new>-?\d+)",
        "strides of {name}",
        ("batch.contiguous()  # before the compiled call, in every step",),
    ),
    _Rule(
        "dimensions",
        rf"tensor '{_NAME}' rank mismatch\. expected (?P<old>\d+), actual (?P<new>\d+)",
        "number of dimensions of {name}",
        ("batch.reshape(...)  # to the same number of dimensions in every step",),
    ),
    _Rule(
        "device",
        rf"tensor '{_NAME}' dispatch key set mismatch",
        "device, layout or inference mode of {name}",
        ("batch.to(device)  # and either torch.no_grad() or torch.inference_mode() everywhere",),
    ),
    _Rule(
        "training_mode",
        rf"{_NAME}\.training == (?P<old>True|False)$",
        "training or evaluation mode of {name}",
        (_ONE_MODE,),
        avoidable=False,
    ),
    _Rule(
        "gradient_mode",
        r"GLOBAL_STATE changed: grad_mode$",
        "whether gradients are recorded",
        (_ONE_MODE,),
        avoidable=False,
    ),
    _Rule(
        "global_state",
        r"GLOBAL_STATE changed: (?P<name>.+)",
        "torch's global state: {name}",
        ("set it once, before the first step",),
    ),
    _Rule(
        "modes",
        r"___check_torch_function_mode_stack\(\)",
        "modes such as `with torch.device(...)`",
        ("enter them around every call of the compiled code, or around none",),
    ),
    _Rule(
        "first_step",
        rf"(?:not )?len\((?P<name>self\.state\b.*)\) [!=]= {_WAS}$",
        "the optimizer's state, which its first step makes",
        avoidable=False,
    ),
    _Rule(
        "length",
        rf"(?:not )?len\({_NAME}\) [!=]= (?P<old>\d+)$",
        "length of {name}",
        ("as many entries in every step, or one tensor made by torch.stack()",),
    ),
    _Rule(
        "learning_rate",
        rf"(?P<name>.*\['lr'\]) == {_WAS}$",
        "learning rate {name}",
        ("lr=torch.tensor(...)  # the optimizer's, changed by fill_()",),
    ),
    _Rule(
        "computed_number",
        rf"(?P<name>___stack\d+) == {_WAS}$",
        "a number that the code computes ({name})",
        ("keep it a tensor: no .item(), int() or float() between compiled parts",),
    ),
    _Rule(
        "number",
        rf"{_NAME} == (?P<old>-?\d+)$",
        "the number {name}",
        ("torch.tensor({name})  # pass it as a tensor", _ENV),
    ),
    _Rule(
        "number",
        rf"{_NAME} == (?P<old>-?\d+\.?\d*(?:e[+-]?\d+)?|-?inf|nan)$",
        "the number {name}",
        ("torch.tensor({name})  # pass it as a tensor",),
    ),
    _Rule(
        "missing",
        rf"{_NAME}\.grad is (?:not )?None$",
        "whether {name} has a gradient",
        ("optimizer.zero_grad(set_to_none=False)",),
    ),
    _Rule(
        "missing",
        rf"{_NAME} is (?:not )?None$",
        "whether {name} is given or None",
        ("pass a tensor in every step, of zeros or ones where there is none",),
    ),
    _Rule(
        "value",
        rf"{_NAME} == {_WAS}$",
        "the value of {name}",
        ("choose outside the compiled code, or accept one graph for each value",),
        avoidable=False,
    ),
    _Rule(
        "keys",
        rf"(?:set|dict)\.__contains__\({_NAME}, {_WAS}\)$",
        "keys of {name}",
        ("the same keys in every step",),
    ),
    _Rule(
        "object",
        rf"(?:___check_obj_id\({_NAME}, \d+\)"
        r"|CodeGuardAccessor: Not a function on (?P<function>.+)\.__code__)",
        "{name} is another object",
        ("make it once, before the loop",),
    ),
    _Rule(
        "type",
        rf"(?:___check_type_id\({_NAME}, \d+\)|expected type of '(?P<tensor>.+?)' to be a tensor)",
        "type of {name}",
        ("pass the same type in every step",),
    ),
    _Rule(
        "same_tensor",
        "Duplicate tensors found: (?P<name>.+)",
        "one tensor passed twice: {name}",
        ("pass a clone() as the second",),
    ),
    _Rule(
        "backend",
        "BACKEND_MATCH failure",
        "the backend",
        ("torch.compile(...)  # once, before the loop",),
    ),
)
_READERS = tuple((re.compile(rule.pattern), rule) for rule in _RULES)


def read(reason: str) -> Change:
    """Return what a ``compile`` event's ``reason`` says; of kind ``other`` where it is unknown."""
    line = " ".join(_ID.sub("", reason, count=1).partition("\n")[0][:_MOST].split())
    guard, _, note = _LOCAL.sub(r"\1", line).partition(" # ")
    for pattern, rule in _READERS:
        if rule.note in note and (found := pattern.match(guard)):
            return _change(rule, {k: v for k, v in found.groupdict().items() if v is not None})
    return Change("other", guard or reason, avoidable=False)


def _change(rule: _Rule, told: Mapping[str, str]) -> Change:
    name = next((told[key] for key in ("name", "function", "tensor") if key in told), "")
    source = _source(name) if _ENV in rule.add else ""
    words = {**told, "name": name, "source": source, "most": "{most}"}
    return Change(
        rule.kind,
        rule.what.format_map(words),
        tuple(told[key] for key in ("old", "new") if key in told),
        tuple(line.format_map(words) for line in rule.add),
        source,
        rule.avoidable,
    )


def _source(name: str) -> str:
    """Return torch's own name of a source: its reasons leave ``L['...']`` of a local out."""
    if name.startswith("G["):
        return name
    root = re.match(r"\w*", name)
    end = root.end() if root else 0
    return f"L['{name[:end]}']{name[end:]}"
