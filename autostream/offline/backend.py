"""TorchAir's configuration with custom passes in its two slots, and its Dynamo backend with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from autostream.offline import host

if TYPE_CHECKING:
    import torch

#: A custom pass in one of TorchAir's slots: called with (graph module, example inputs, config), works in place.
Pass = Callable[["torch.fx.GraphModule", Sequence[Any], Any], object]


def npu_backend(*, pre_pass: Pass | None = None, post_pass: Pass | None = None) -> Callable[..., Any]:
    """Return TorchAir's Dynamo backend in mode max-autotune with the passes in its slots. Its graphs run on an NPU only.

    Raises:
        OfflineError: torch_npu or TorchAir cannot be brought up.
    """
    host.activate()
    import torchair

    backend: Callable[..., Any] = torchair.get_npu_backend(compiler_config=compiler_config(pre_pass, post_pass))
    return backend


def compiler_config(pre_pass: Pass | None, post_pass: Pass | None) -> Any:
    """Return a TorchAir ``CompilerConfig`` in mode max-autotune; the host must be up."""
    import torchair

    config = torchair.CompilerConfig()
    config.mode = "max-autotune"
    if pre_pass is not None:
        config.post_grad_custom_pre_pass = pre_pass
    if post_pass is not None:
        config.post_grad_custom_post_pass = post_pass
    return config
