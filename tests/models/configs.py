"""Language models from the configurations of the `transformers` package: random weights on the meta device, no download.

`transformers` is optional (``pip install autostream[zoo]``); the builders raise ImportError where it is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from autostream import offline
from tests.models.layers import Built

#: MoE layers run their experts as one grouped matmul, which torch.export can trace; the default loops over data.
_MOE = {"_experts_implementation": "grouped_mm"}


class _LastHidden(nn.Module):
    """A model as a function of token ids alone: no cache, no dictionary of results."""

    def __init__(self, model: nn.Module, extra: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.model, self.extra = model, extra

    def forward(self, ids: Tensor) -> Tensor:
        more = dict.fromkeys(self.extra, ids)
        hidden: Tensor = self.model(input_ids=ids, use_cache=False, return_dict=True, **more).last_hidden_state
        return hidden


def _transformers() -> Any:
    """Import the package. It imports torch_npu where that is installed, which without CANN takes the offline host."""
    if offline.why_unavailable() is None:
        offline.activate()
    import transformers

    return transformers


def _built(config: Any, kind: str, tokens: int, batch: int, *extra: str) -> Built:
    logging.getLogger("transformers").setLevel(logging.ERROR)
    with torch.device("meta"):
        model = getattr(_transformers(), kind)(config).eval().to(torch.bfloat16)
        return _LastHidden(model, extra), (torch.zeros(batch, tokens, dtype=torch.int64),)


def _config(kind: str, settings: Mapping[str, Any]) -> Any:
    config = getattr(_transformers(), kind)(**{key: value for key, value in settings.items() if not key.startswith("_")})
    for key, value in settings.items():
        if key.startswith("_"):
            setattr(config, key, value)
    return config


def language_model(kind: str, tokens: int, batch: int, *extra: str, **settings: Any) -> Callable[[], Built]:
    """Return a builder of ``{kind}Model`` with ``{kind}Config(**settings)`` on `batch` x `tokens` ids.

    `extra` names further inputs that get the same ids. Settings that start with an underscore are set afterwards.
    """

    def build() -> Built:
        return _built(_config(f"{kind}Config", settings), f"{kind}Model", tokens, batch, *extra)

    return build


def _moe(kind: str, tokens: int, batch: int, **settings: Any) -> Callable[[], Built]:
    return language_model(kind, tokens, batch, **settings, **_MOE)


#: Layers are cut to four: the models repeat them. The experts of DeepSeek-V3 and GLM-4 are those one of 16 cards would hold.
LANGUAGE_MODELS: Mapping[str, Callable[[], Built]] = {
    "bert-base": language_model("Bert", 128, 1),
    "t5-small": language_model("T5", 64, 1, "decoder_input_ids"),
    "llama-8b-4l": language_model(
        "Llama",
        1,
        32,
        hidden_size=4096,
        intermediate_size=14336,
        num_attention_heads=32,
        num_key_value_heads=8,
        num_hidden_layers=4,
    ),
    "qwen2-moe-4l": _moe("Qwen2Moe", 1, 32, num_hidden_layers=4),
    "qwen3-moe-4l": _moe("Qwen3Moe", 1, 32, num_hidden_layers=4),
    "deepseek-v3-4l": _moe("DeepseekV3", 1, 32, num_hidden_layers=4, n_routed_experts=16),
    "glm4-moe-4l": _moe("Glm4Moe", 1, 32, num_hidden_layers=4, n_routed_experts=16),
    "qwen3-next-4l": _moe("Qwen3Next", 1, 32, num_hidden_layers=4),
}
