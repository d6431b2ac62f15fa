"""Rules of other systems as strategies, so that they can be simulated beside ours. None of them is an option for users."""

from collections.abc import Callable, Mapping

from autostream.scheduling.baselines.cube_vector import cube_vector
from autostream.scheduling.baselines.dag import Baseline
from autostream.scheduling.baselines.fixed_weights import fixed_weights
from autostream.scheduling.baselines.heft import heft
from autostream.scheduling.baselines.ios import ios
from autostream.scheduling.baselines.opara import opara
from autostream.scheduling.baselines.path_cover import path_cover
from autostream.scheduling.baselines.torchsched import torchsched
from autostream.scheduling.lists.serial import Serial
from autostream.scheduling.problem import Strategy

__all__ = ["BASELINES"]

#: A factory for each strategy by name.
BASELINES: Mapping[str, Callable[[], Strategy]] = {
    "serial": Serial,
    "heft": lambda: Baseline(name="heft", rule=heft),
    "torchsched": lambda: Baseline(name="torchsched", rule=torchsched),
    "opara": lambda: Baseline(name="opara", rule=opara),
    "path-cover": lambda: Baseline(name="path-cover", rule=path_cover),
    "cube-vector": lambda: Baseline(name="cube-vector", rule=cube_vector),
    "ios": lambda: Baseline(name="ios", rule=ios),
    "fixed-weights": lambda: Baseline(name="fixed-weights", rule=fixed_weights),
}
