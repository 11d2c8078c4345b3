"""A seeded generator of step times whose steady state is known: 12 shapes, 3 kinds of noise, any length.

Tests and docs/statistics.md (made by bench/accuracy.py) use the same series.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import NamedTuple

STEP_S = 0.1
NOISE = 0.03
LENGTHS = (50, 100, 200, 1_000, 10_000)
NOISES = ("normal", "heavy", "correlated")
"""Independent; with 3 % stalls of three times the step and a checkpoint of four times at every tenth of the run; AR(1) of 0.6."""


class Truth(NamedTuple):
    """`steady_from` is the first steady step, None where there is no steady state; levels are factors of STEP_S."""

    shape: str
    steady_from: int | None
    level: Callable[[int], float]


def _shapes(n: int) -> dict[str, Truth]:
    plateau = 5 if n < 200 else 40
    tau = n / 40
    settled = math.ceil(tau * math.log(100))
    third, late = round(0.3 * n), round(0.7 * n)
    period = max(n // 5, 1)
    return {
        "flat": Truth("flat", 0, lambda i: 1.0),
        "compile": Truth("warmup", 1, lambda i: 20.0 if i == 0 else 1.0),
        "compile_and_caches": Truth("warmup", 3, lambda i: 40.0 if i == 0 else 3.0 if i < 3 else 1.0),
        "queued": Truth("warmup", 5, lambda i: 50.0 if i == 0 else 0.05 if i < 5 else 1.0),
        "plateau": Truth("warmup", plateau, lambda i: 1.5 if i < plateau else 1.0),
        "low_plateau": Truth("warmup", plateau, lambda i: 1.2 if i < plateau else 1.0),
        "decay": Truth("warmup", settled, lambda i: 1 + math.exp(-i / tau)),
        "stairs": Truth("warmup", round(0.2 * n), lambda i: 2.0 if i < n // 20 else 1.2 if i < round(0.2 * n) else 1.0),
        "slowdown": Truth("slowdown", third, lambda i: 1.0 if i < third else 1.15),
        "late_slowdown": Truth("no_steady_state", None, lambda i: 1.0 if i < late else 1.15),
        "late_speedup": Truth("no_steady_state", None, lambda i: 1.15 if i < late else 1.0),
        "two_levels": Truth("no_steady_state", None, lambda i: 1.3 if i // period % 2 else 1.0),
    }


SHAPES = tuple(_shapes(50))


def series(shape: str, noise: str, n: int, seed: int) -> tuple[list[float], Truth]:
    """Step times in seconds, and what is true of them."""
    source = random.Random(f"{shape} {noise} {n} {seed}")
    truth = _shapes(n)[shape]
    values, wander = [], source.gauss(0, 1)
    for i in range(n):
        wander = 0.6 * wander + 0.8 * source.gauss(0, 1) if noise == "correlated" else source.gauss(0, 1)
        value = STEP_S * truth.level(i) * math.exp(NOISE * wander)
        if noise == "heavy":
            value *= 4.0 if i % max(n // 10, 1) == n // 20 else 3.0 if source.random() < 0.03 else 1.0
        values.append(value)
    return values, truth
