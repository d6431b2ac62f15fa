"""The registry of the zoo: every model by name, what it needs, and whether there is something to gain."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from autostream import offline
from autostream.graph.programs import AtenProgram, to_aten
from tests.models import hrnet, inception, nasnet, randwire, residual, serving, toys, vit
from tests.models.configs import LANGUAGE_MODELS
from tests.models.layers import Built

#: ``"gain"``: known to gain from several streams; ``"control"``: nothing to gain, must be left alone; ``"open"``: depends on
#: sizes and prices.
Expected = Literal["gain", "control", "open"]
Need = Literal["npu", "transformers", "shared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One model."""

    name: str
    #: The part of the name before the slash: ``cnn``, ``control``, ``llm``, ``npu``.
    family: str
    build: Callable[[], Built]
    expected: Expected
    needs: tuple[Need, ...] = ()

    def program(self) -> AtenProgram:
        """Return the model as the flat ATen graph that a pass gets, without weights.

        Raises:
            ImportError, OfflineError, OSError: what `missing` would have told.
        """
        module, inputs = self.build()
        return to_aten(module, inputs)

    def missing(self) -> str | None:
        """Return why the model cannot be built here, or None."""
        for need in self.needs:
            if need == "npu" and (reason := offline.why_unavailable()):
                return reason
            if need == "transformers" and importlib.util.find_spec("transformers") is None:
                return "the package transformers is not installed (pip install autostream[zoo])"
            if need == "shared" and not randwire.FOLDER.is_dir():
                return f"no reference data at {randwire.FOLDER}"
        return None


def _vision() -> Iterator[Entry]:
    builders: dict[str, tuple[Callable[[], Built], Expected]] = {
        "cnn/squeezenet": (inception.squeezenet, "open"),
        "cnn/googlenet": (inception.googlenet, "gain"),
        "cnn/inception-v3": (inception.inception_v3, "gain"),
        "cnn/inception-v3-b32": (partial(inception.inception_v3, 32), "open"),
        "cnn/nasnet-a": (nasnet.nasnet_large, "gain"),
        "cnn/randwire": (lambda: randwire.randwire(randwire.small_world(seed=1)), "gain"),
        "cnn/hrnet-w18": (hrnet.hrnet_w18, "gain"),
        "control/resnet50": (residual.resnet50, "control"),
        "control/densenet121": (residual.densenet121, "control"),
        "control/chain": (toys.chain, "control"),
        "control/tiny-vector": (toys.tiny_vector, "control"),
    }
    for name, (build, expected) in builders.items():
        yield _entry(name, build, expected)
    yield _entry("control/vit-b", partial(vit.vit_b, fused=True), "control", "npu")
    yield _entry("cnn/randwire-ios", lambda: randwire.randwire(randwire.from_files(randwire.FOLDER)), "gain", "shared")


def _language() -> Iterator[Entry]:
    for name, build in LANGUAGE_MODELS.items():
        yield _entry(f"llm/{name}", build, "open", "transformers")


def _experts() -> Iterator[Entry]:
    """A shared expert beside routed ones: both precisions, one card and sixteen, and the batches of a decode step."""
    precisions: tuple[serving.Precision, ...] = ("w8a8", "bf16")
    for precision in precisions:
        for cards in (1, 16):
            for batch in (1, 8, 64, 256):
                build = partial(serving.moe_layers, precision, batch, cards=cards)
                yield _entry(f"npu/moe-{precision}-ep{cards}-b{batch}", build, "open", "npu")


def _serving() -> Iterator[Entry]:
    tensor_parallel, dual = serving.tensor_parallel, partial(serving.tensor_parallel, micro_batches=2)
    builders: dict[str, tuple[Callable[[], Built], Expected]] = {
        "npu/mla-fused": (partial(serving.attention_layers, "fused"), "control"),
        "npu/mla-parts": (partial(serving.attention_layers, "parts"), "open"),
        "npu/mla-parts-b8": (partial(serving.attention_layers, "parts", 8), "open"),
        "npu/dsa": (partial(serving.attention_layers, "sparse"), "gain"),
        "npu/dsa-b8": (partial(serving.attention_layers, "sparse", 8), "gain"),
        "npu/decode-1l": (serving.decode_layers, "gain"),
        "npu/decode-8l": (partial(serving.decode_layers, layers=8), "gain"),
        "npu/decode-61l": (partial(serving.decode_layers, layers=61), "gain"),
        "npu/decode-bf16-8l": (partial(serving.decode_layers, layers=8, precision="bf16"), "open"),
        "npu/longcat-1l": (serving.shortcut_layers, "gain"),
        "npu/longcat-14l": (partial(serving.shortcut_layers, layers=14), "gain"),
        "npu/kv-cache": (partial(toys.kv_cache, npu=True), "open"),
        "npu/tp4-decode-4l": (partial(tensor_parallel, layers=4), "open"),
        "npu/tp4-dual-decode-4l": (partial(dual, layers=4), "gain"),
        "npu/tp4-prefill-2l": (partial(tensor_parallel, 4096, 2, prefill=True), "open"),
        "npu/tp4-dual-prefill-2l": (partial(dual, 4096, 2, prefill=True), "gain"),
        "npu/moe-w8a8-prefill": (partial(serving.moe_layers, "w8a8", 4096, cards=1), "open"),
        "npu/moe-bf16-prefill": (partial(serving.moe_layers, "bf16", 4096, cards=1), "open"),
    }
    for name, (build, expected) in builders.items():
        yield _entry(name, build, expected, "npu")


def _entry(name: str, build: Callable[[], Built], expected: Expected, *needs: Need) -> Entry:
    return Entry(name=name, family=name.partition("/")[0], build=build, expected=expected, needs=needs)


#: Every model, by name.
ZOO: Mapping[str, Entry] = {entry.name: entry for part in (_vision, _language, _experts, _serving) for entry in part()}
