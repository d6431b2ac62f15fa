"""Profiler files of Ascend devices: reading them, and what they say of the chip, its streams and its time."""

from autostream.profiles.model import Core, Kernel, Profile, Rejected, Tensor
from autostream.profiles.reader import read_profile

__all__ = ["Core", "Kernel", "Profile", "Rejected", "Tensor", "read_profile"]
