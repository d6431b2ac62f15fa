"""ViT-B/16: a transformer with one projection for query, key and value; a negative control where attention is one kernel."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from autostream import offline
from tests.models.layers import Built, on_meta


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, *, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        if self.fused:  # what torch_npu makes of the other call where there is an NPU
            scale = (width // self.heads) ** -0.5
            mixed = torch.ops.npu.npu_fusion_attention(query, key, value, self.heads, "BNSD", scale=scale)[0]
        else:
            mixed = functional.scaled_dot_product_attention(query, key, value)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mlp(self.norm2(x))


class _ViT(nn.Module):
    def __init__(self, width: int = 768, heads: int = 12, depth: int = 12, patches: int = 196, *, fused: bool = False) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 16, 16)
        self.cls = nn.Parameter(torch.empty(1, 1, width))
        self.position = nn.Parameter(torch.empty(1, patches + 1, width))
        self.blocks = nn.Sequential(*(_Block(width, heads, fused=fused) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patch(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


def vit_b(batch: int = 1, *, fused: bool = False) -> Built:
    """Return ViT-B/16 (Dosovitskiy et al., 2020; 86,567,656 parameters) on 224 x 224 images.

    `fused`: with the attention kernel of torch_npu, which must be there; else with products and a softmax.
    """
    if fused:
        offline.activate()
    return on_meta(partial(_ViT, fused=fused), 224, batch)
