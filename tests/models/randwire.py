"""RandWire: each stage of the network is a random small-world graph of separable convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import networkx as nx
import torch
from torch import Tensor, nn

from tests.models.layers import Built, Conv, Head, on_meta

#: The graph files of the four stages, in order.
FILES = ("ws-16-4-0.75-2.txt", "ws-32-4-0.75-3.txt", "ws-32-4-0.75-4.txt", "ws-32-4-0.75-5.txt")
#: Where the reference data lies beside the repository.
FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "ios_randwire"

_NODES = (16, 32, 32, 32)


class _Stage(nn.Module):
    """Every node adds up its inputs, then ReLU, separable convolution, normalisation; the sinks are averaged.

    `wiring` gives for each node the smaller-numbered nodes it reads; a node without any reads the stage's input, halved.
    """

    def __init__(self, wiring: Sequence[Sequence[int]], inner: int, width: int) -> None:
        super().__init__()
        self.wiring = wiring
        used = {before for row in wiring for before in row}
        self.sinks = [node for node in range(len(wiring)) if node not in used]
        self.nodes = nn.ModuleList(_node(width, 1) if row else _node(width, 2, inner) for row in wiring)

    def forward(self, x: Tensor) -> Tensor:
        results: list[Tensor] = []
        for row, node in zip(self.wiring, self.nodes, strict=True):
            results.append(node(_total([results[before] for before in row]) if row else x))
        return _total([results[sink] for sink in self.sinks]) / len(self.sinks)


def _node(width: int, stride: int, inner: int | None = None) -> nn.Module:
    inner = inner or width
    return nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False),
        nn.Conv2d(inner, width, 1, bias=False),
        nn.BatchNorm2d(width),
    )


def _total(parts: Sequence[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = torch.add(total, part)
    return total


def _wiring(nodes: int, edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    rows: list[list[int]] = [[] for _ in range(nodes)]
    for first, second in edges:
        rows[max(first, second)].append(min(first, second))
    return [sorted(row) for row in rows]


def small_world(seed: int) -> list[list[list[int]]]:
    """Return the wiring of four stages: Watts-Strogatz graphs WS(4, 0.75), each edge from the smaller number to the larger."""
    graphs = [nx.connected_watts_strogatz_graph(n, 4, 0.75, seed=seed + stage) for stage, n in enumerate(_NODES)]
    return [_wiring(len(graph), sorted(graph.edges)) for graph in graphs]


def from_files(folder: Path) -> list[list[list[int]]]:
    """Return the wiring in graph files: the number of nodes, the number of edges, then one edge a line."""
    wirings = []
    for name in FILES:
        numbers = [int(word) for word in (folder / name).read_text(encoding="ascii").split()]
        nodes, count, ends = numbers[0], numbers[1], numbers[2:]
        edges = list(zip(ends[::2], ends[1::2], strict=True))
        assert len(edges) == count, f"{name} promises {count} edges and holds {len(edges)}"
        wirings.append(_wiring(nodes, edges))
    return wirings


def randwire(wirings: Sequence[Sequence[Sequence[int]]], batch: int = 1, channels: int = 78) -> Built:
    """Return a RandWire network (Xie et al., 2019, the regular regime) with the given wiring, on 224 x 224 images."""

    def build() -> nn.Module:
        widths = [channels << stage for stage in range(len(wirings))]
        inner = [channels // 2, *widths[:-1]]
        stages = [_Stage(*sizes) for sizes in zip(wirings, inner, widths, strict=True)]
        return nn.Sequential(Conv(3, channels // 2, 3, 2, relu=False), *stages, nn.ReLU(), Conv(widths[-1], 1280), Head(1280))

    return on_meta(build, 224, batch)
