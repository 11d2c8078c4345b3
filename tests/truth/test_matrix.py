"""The short form of `make truth`."""

from __future__ import annotations

import pytest

from distmon.core.synthetic_faults import Trial
from tests.truth import real
from tests.truth.matrix import Matrix, first_named, run, small_delays, trials


def test_causes_are_named_with_their_rank_and_nobody_else_is() -> None:
    matrix = Matrix()
    for trial in [*trials(4, range(2)), *trials(2, range(1)), *trials(32, range(1), ["healthy", "compute", "send"])]:
        matrix.add(run(trial))
    assert matrix.share_right >= 0.97, "\n".join(matrix.lines())
    assert not matrix.false
    assert sum(matrix.gains) >= 0.8 * len(matrix.gains)


def test_nodes_on_which_nothing_is_wrong_are_not_blamed() -> None:
    """Of the two ranks' nodes of these seeds most have full cores, or memory that is waited for at checkpoints."""
    matrix = Matrix()
    for seed in range(6):
        matrix.add(run(Trial("healthy", ranks=2, steps=900, seed=seed, varied=True)))
    assert matrix.healthy_steps == 5_400 and not matrix.false


def test_small_delays_are_named_in_time_and_nobody_else_is() -> None:
    slight = [first_named(trial) for trial in small_delays(2, 0.02, range(40))]
    plain = [first_named(trial) for trial in small_delays(2, 0.08, range(20))]
    assert sum(steps is not None and steps <= 150 for steps, _ in slight) >= 39
    assert all(steps is not None and steps <= 25 for steps, _ in plain)
    assert sum(other for _, other in [*slight, *plain]) <= 1


def test_stalls_and_a_machine_that_grows_slower_do_not_move_the_measured_gain() -> None:
    """Steps of 90 ms, and of 100 ms with the fault, from the middle on a fifth longer."""
    faulty = {step for block in real.blocks(fault=True) for step in block}
    steps = [(0.1 if step in faulty else 0.09) * (1.2 if step > 380 else 1.0) for step in range(real.STEPS)]
    stalls = dict.fromkeys([228, 235, 345, 346, 408], 1.0)
    assert real.measured_gain([stalls.get(step, seconds) for step, seconds in enumerate(steps)]) == pytest.approx(10.0, abs=0.7)
