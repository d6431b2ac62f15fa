"""Build the demo layer and its input."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from autostream import offline
from autostream.demo.aten_layer import AtenMoeLayer
from autostream.demo.npu_layer import NpuMoeLayer
from autostream.demo.shape import MoeShape, tokens
from autostream.errors import InputError


def moe_decode_layer(
    *,
    npu: bool,
    batch: int = 64,
    hidden: int = 7168,
    intermediate: int = 2048,
    shared_intermediate: int = 2048,
    local_experts: int = 16,
    top_k: int = 8,
    expert_parallel: bool | None = None,
    ep_world_size: int = 16,
    group: str = "ep",
    device: str | torch.device = "meta",
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return a DeepSeek-style mixture-of-experts decode layer and its example input.

    The module maps the residual stream after attention, (batch, hidden) bfloat16, to the one after the layer, of the same shape.
    On the default meta device neither weights nor input use memory, and ``torch.export.export(model, args, strict=False)`` works
    as it is. On another device they are filled with reproducible values.

    Args:
        npu: Use torch_npu's fused operators (W8A8 experts) instead of plain ATen operators (bfloat16). Imports torch_npu, where
            CANN is absent by way of the offline host.
        batch: Tokens this card decodes in one step.
        hidden: Width of the residual stream.
        intermediate: Inner width of one routed expert.
        shared_intermediate: Inner width of the shared expert.
        local_experts: Routed experts whose weights this card holds.
        top_k: Routed experts per token.
        expert_parallel: Exchange tokens with the other cards of a group. Default: as `npu`. Needs `npu`.
        ep_world_size: Cards of that group; the layer then has local_experts x ep_world_size routed experts, else local_experts.
        group: Name of that group. TorchAir passes the name on as it is; no process group need exist to convert the graph.
        device: Where weights and input live.

    Raises:
        InputError: a size is out of range, or the ATen layer was asked for expert parallelism.
        OfflineError: `npu` was asked for and torch_npu cannot be imported; says why.
    """
    parallel = npu if expert_parallel is None else expert_parallel
    if parallel and not npu:
        raise InputError("expert_parallel = True needs npu = True: the ATen layer holds all its experts on one card")
    if parallel and ep_world_size == 1:
        raise InputError("expert_parallel = True needs ep_world_size >= 2; for one card give expert_parallel = False")
    if npu:
        offline.activate()
    shape = MoeShape(
        batch=batch,
        hidden=hidden,
        intermediate=intermediate,
        shared_intermediate=shared_intermediate,
        local_experts=local_experts,
        ep_world_size=ep_world_size if parallel else 1,
        top_k=top_k,
    )
    place = torch.device(device)
    layer = NpuMoeLayer(shape, place, group) if npu else AtenMoeLayer(shape, place)
    return layer, (tokens(shape, place),)
