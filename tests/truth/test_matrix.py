"""The short form of `make truth`."""

from __future__ import annotations

from distmon.core.synthetic_faults import Trial
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
