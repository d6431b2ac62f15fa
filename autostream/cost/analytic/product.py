"""The matrix product inside an operator: its size read from tensor shapes, and its tiling over cube cores."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autostream.cost.chips.chip import Cube, CubeRate
from autostream.cost.chips.factors import Group
from autostream.graph.model import Op, TensorSpec

#: Sides of the smallest block the cube unit multiplies; smaller operands are padded to it.
_FRACTAL = 16
#: Narrowest output tile worth cutting.
_NARROWEST = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """`batch` products of (m, k) x (k, n); `itemsize` is the bytes per element of the wider factor."""

    batch: int
    m: int
    n: int
    k: int
    itemsize: int

    @property
    def flop(self) -> float:
        """Floating point operations without padding."""
        return 2.0 * self.batch * self.m * self.n * self.k


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiling:
    """How a product is spread: output tiles, cores in use, the load of the busiest one, and its share of the weights."""

    tiles: int
    cores: int
    flop: float
    bytes_read: float
    share: float


def read_product(op: Op, group: Group) -> Product | None:
    """Return the product of an operator, or None where its tensors do not have the shape of one."""
    left, right = group.operands
    if group.product is None or not op.outputs or len(op.inputs) <= max(left, right):
        return None
    a, b, out = op.inputs[left], op.inputs[right], op.outputs[0]
    product = _conv(a, b, out) if group.product == "conv" else _matmul(a, b, out)
    if product is None or min(product.batch, product.m, product.n, product.k) <= 0:
        return None
    # A transposed convolution has the shapes of another product; its flop tell.
    stretched = group.product == "conv" and 0 < op.flops < 0.9 * product.flop
    return None if stretched else product


def _matmul(a: TensorSpec, b: TensorSpec, out: TensorSpec) -> Product | None:
    """(.., m, k) x (.., k, n); a stack of weights under a flat output is a grouped product, its rows shared out evenly.

    With fewer rows than weights in the stack, the others have none.
    """
    if len(a.shape) < 2 or len(b.shape) < 2 or len(out.shape) < 2:
        return None
    rows, n = math.prod(out.shape[:-1]), out.shape[-1]
    if min(len(a.shape), len(b.shape)) > 2 and n not in b.shape[-2:]:
        # The results of several products side by side in one row.
        n = b.shape[-1] if b.shape[-2] == a.shape[-1] else b.shape[-2]
        rows = out.numel // max(1, n)
    batch = min(math.prod(b.shape[:-2]), rows)
    m = math.ceil(rows / batch) if batch else 0
    return Product(batch=batch, m=m, n=n, k=a.shape[-1], itemsize=max(a.itemsize, b.itemsize))


def without_idle_weights(op: Op, group: Group) -> Op:
    """Return a grouped product without the bytes of the weights that no row meets: at most one for each row."""
    product = read_product(op, group)
    if product is None or group.product != "matmul":
        return op
    stack = op.inputs[group.operands[1]]
    held = math.prod(stack.shape[:-2])
    idle = stack.nbytes - stack.nbytes * product.batch // held
    return op._replace(bytes_read=max(0, op.bytes_read - idle)) if idle else op


def _conv(x: TensorSpec, weight: TensorSpec, out: TensorSpec) -> Product | None:
    """Convolution as a product: m = batch and output pixels, n = output channels, k = input channels and window, per group."""
    if len(x.shape) < 3 or len(weight.shape) != len(x.shape) or len(out.shape) != len(x.shape):
        return None
    channels, k = out.shape[1], math.prod(weight.shape[1:])
    if weight.shape[0] != channels:
        return None
    groups = max(1, x.shape[1] // weight.shape[1]) if weight.shape[1] else 1
    m = out.numel // channels if channels else 0
    return Product(batch=groups, m=m, n=math.ceil(channels / groups), k=k, itemsize=max(x.itemsize, weight.itemsize))


def cube_rate(op: Op, group: Group, cube: Cube) -> CubeRate:
    """Return the rate of the factors' data type; with two types the slower, and fp16 for what is neither (a packed weight)."""
    rates = {"float32": cube.hf32 if group.hf32 else cube.fp32, "int8": cube.int8, "uint8": cube.int8}
    factors = [op.inputs[i] for i in group.operands if i < len(op.inputs)]
    found = [rates.get(spec.dtype, cube.fp16) for spec in factors]
    return min(found, key=lambda rate: rate.flop_per_cycle_per_core.value, default=cube.fp16)


def tile(product: Product, cube: Cube, cores: int) -> Tiling:
    """Return how a product is cut into output tiles and shared out in waves over the cores."""
    tile_m = min(cube.tile_m_elements.value, _padded(product.m))
    rows = math.ceil(product.m / tile_m)
    tile_n = min(cube.tile_n_elements.value, _padded(product.n))
    if rows == 1:
        tile_n = _balanced(product, tile_n, cores)
    k = _padded(product.k)
    tiles = product.batch * rows * math.ceil(product.n / tile_n)
    waves = math.ceil(tiles / cores)
    # Where tiles leave half of the chip idle, kernels split the inner dimension.
    splits = max(1, cores // tiles)
    piece = max(k / splits, min(k, cube.split_k_elements.value))
    return Tiling(
        cores=min(cores, tiles * math.ceil(k / piece)),
        tiles=tiles,
        flop=waves * 2.0 * tile_m * tile_n * piece,
        bytes_read=waves * (tile_m + tile_n) * piece * product.itemsize,
        # Row tiles that need the same weights bring them in once.
        share=min(1.0, waves * tile_n * piece / (product.batch * rows * product.n * product.k)),
    )


def _balanced(product: Product, widest: int, cores: int) -> int:
    """Return the width of the output tiles that loads the busiest core least, the widest of equals.

    With one row of tiles nothing is lost by narrower ones: each weight is read by one core anyway.
    """
    narrowest = min(_NARROWEST, widest)

    def load(width: int) -> tuple[int, int]:
        return math.ceil(product.batch * math.ceil(product.n / width) / cores) * width, -width

    return min(range(narrowest, widest + 1, _FRACTAL), key=load)


def _padded(size: int) -> int:
    return math.ceil(size / _FRACTAL) * _FRACTAL
