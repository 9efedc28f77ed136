"""Fold batch norms into the convolutions before them: one operation instead of two."""

from collections.abc import Collection
from typing import Any

import torch
from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

CONVOLUTIONS = {nn.BatchNorm1d: nn.Conv1d, nn.BatchNorm2d: nn.Conv2d, nn.BatchNorm3d: nn.Conv3d}
PRECISE = {torch.float32, torch.float64}


def fold_norms(body: fx.GraphModule, kept: Collection[fx.Node]) -> None:
    """Fold each norm in `body` into the convolution before it, if that has no other user.

    `body` is in evaluation mode. The result has its own weights, so later changes of the module's
    do not reach it. Not folded are convolutions that are `kept`, modules of derived types, with
    hooks or without running averages, which may compute something else, and numbers below single
    precision, which would round too much.
    """
    for norm in list(body.graph.nodes):
        before = norm.args[0] if norm.op == "call_module" and norm.args else None
        if not isinstance(before, fx.Node) or before.op != "call_module" or before in kept:
            continue
        parts = [body.get_submodule(str(node.target)) for node in (before, norm)]
        if list(before.users) == [norm] and _foldable(*parts):
            norm.target = f"folded_{norm.name}"
            body.add_submodule(norm.target, fuse_conv_bn_eval(*parts).requires_grad_(False))  # type: ignore[type-var, arg-type]
            norm.args, norm.kwargs = before.args, before.kwargs
            body.graph.erase_node(before)
    body.recompile()


def _foldable(convolution: nn.Module, norm: Any) -> bool:
    plain = type(convolution) is CONVOLUTIONS.get(type(norm)) and norm.running_mean is not None and not norm.training
    precise = plain and {convolution.weight.dtype, norm.running_mean.dtype} <= PRECISE
    return precise and not any(
        part._forward_hooks or part._forward_pre_hooks or part._backward_hooks for part in (convolution, norm)
    )
