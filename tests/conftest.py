"""What every test shares: an importable torch, hypothesis profiles, the offline host, the reference data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from autostream import offline, telemetry

offline.prepare_environment()  # before any test module imports torch

settings.register_profile("ci", deadline=None, derandomize=True)
settings.register_profile("nightly", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(autouse=True)
def no_reports() -> None:
    """Start every test with an empty list of reports: it is bounded, so its length says nothing once it is full."""
    telemetry.clear()


@pytest.fixture(scope="session")
def npu_host() -> None:
    """Bring up the real torch_npu and TorchAir, or skip with the reason why they are not to be had."""
    reason = offline.why_unavailable()
    if reason:
        pytest.skip(reason)
    offline.activate()


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of reference data beside the repository, or skip."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip(f"no reference data at {folder}")
    return folder
