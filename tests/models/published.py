"""The examples with which TorchAir's documentation presents multi-stream graphs, written anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from tests.models.values import frozen, values


class _Mixture(nn.Module):
    def __init__(self, n: int, hidden: int, inner: int, dtype: torch.dtype, device: str) -> None:
        super().__init__()
        self.up = nn.ParameterList(frozen(hidden, inner, dtype=dtype, device=device, seed=i) for i in range(n))
        self.down = nn.ParameterList(frozen(inner, hidden, dtype=dtype, device=device, seed=n + i) for i in range(n))

    def forward(self, x: Tensor) -> Tensor:
        results = [torch.mm(functional.silu(torch.mm(x, up)), down) for up, down in zip(self.up, self.down, strict=True)]
        total = results[0]
        for result in results[1:]:
            total = total + result
        return total


def mixture(
    n: int = 8, tokens: int = 64, hidden: int = 256, inner: int = 512, *, dtype: torch.dtype = torch.float16, device: str = "cpu"
) -> tuple[nn.Module, tuple[Tensor]]:
    """Return n independent experts (mm, silu, mm) on the same tokens (tokens, hidden), summed at the end."""
    return _Mixture(n, hidden, inner, dtype, device), (values(tokens, hidden, dtype=dtype, device=device, seed=2 * n),)


class _FourInputs(nn.Module):
    def forward(self, in1: Tensor, in2: Tensor, in3: Tensor, in4: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        import torchair  # the offline host, or an NPU machine, must be up before this module is traced

        scope = torchair.scope
        add1 = torch.add(in1, in2)
        with scope.npu_stream_switch("1"):
            scope.npu_wait_tensor(in4, add1)
            mm1 = torch.mm(in3, in4)
        mm2 = torch.mm(in3, in4)
        with scope.npu_stream_switch("2"):
            scope.npu_wait_tensor(in4, mm1)
            add2 = torch.add(in3, in4)
        return add1, mm1, mm2, add2


def four_inputs_by_hand(size: int = 1000, *, device: str = "meta") -> tuple[nn.Module, tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Return the hand-written four-input model: add on the default stream, mm on '1', mm on the default one, add on '2'.

    Four (size, size) float16 inputs. Needs TorchAir when called; `aten_graph` traces it, torch.export refuses its scopes.
    """
    first, second, third, fourth = (values(size, size, dtype=torch.float16, device=device, seed=i) for i in range(4))
    return _FourInputs(), (first, second, third, fourth)


class _CustomPass(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        product = torch.mm(x, x)
        return torch.add(torch.abs(product), 1), torch.sub(x, product)


def custom_pass_by_hand(size: int = 3, *, device: str = "cpu") -> tuple[nn.Module, tuple[Tensor]]:
    """Return the model (mm, then abs and add, beside sub) for which `insert_streams` is the hand-written custom pass."""
    return _CustomPass(), (values(size, size, device=device),)


def insert_streams(gm: fx.GraphModule, example_inputs: Sequence[Any], config: Any) -> None:
    """TorchAir custom pass for `custom_pass_by_hand`: mm and abs on 'stream_1', and sub waits for both.

    ::

        mm, abs, add, sub  ->  enter(stream_1), mm, abs, record, exit, add, wait([record]), sub
    """
    air, aten, graph = torch.ops.air, torch.ops.aten, gm.graph
    (product,) = graph.find_nodes(op="call_function", target=aten.mm.default)
    (absolute,) = graph.find_nodes(op="call_function", target=aten.abs.default)
    (difference,) = graph.find_nodes(op="call_function", target=aten.sub.Tensor)
    with graph.inserting_before(product):
        graph.call_function(air.scope_enter.default, (["_user_stream_label"], ["stream_1"]))
    with graph.inserting_after(absolute):
        record = graph.call_function(air.record.default)
    with graph.inserting_after(record):
        graph.call_function(air.scope_exit.default)
    with graph.inserting_before(difference):
        graph.call_function(air.wait.default, ([record],))
    gm.recompile()
