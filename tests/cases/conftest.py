"""Gives every case a folder and a runner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from harness import CaseRunner

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def cases(tmp_path: Path) -> CaseRunner:
    """A runner in an empty folder."""
    return CaseRunner(tmp_path)
