"""Planning from production artefacts: an Ascend IR dump and the profile of a run, without the model's code."""

from autostream.dumps.matching import KernelGroup, NodeMatch
from autostream.dumps.plan import DumpPlan, PlannedNode, Tiers
from autostream.dumps.planning import schedule_dump

__all__ = ["DumpPlan", "KernelGroup", "NodeMatch", "PlannedNode", "Tiers", "schedule_dump"]
