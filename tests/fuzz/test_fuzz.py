"""A short run of the fuzz targets, the same inputs each time; `python -m tests.fuzz` tries a million of each."""

from __future__ import annotations

import random

import pytest

from tests.fuzz.targets import TARGETS

INPUTS = 3000


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_is_fatal(name: str) -> None:
    for seed in range(INPUTS):
        TARGETS[name](random.Random(seed))
