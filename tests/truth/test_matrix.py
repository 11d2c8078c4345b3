"""The short form of `make truth`."""

from __future__ import annotations

from tests.truth.matrix import Matrix, run, trials


def test_causes_are_named_with_their_rank_and_nobody_else_is() -> None:
    matrix = Matrix()
    for trial in [*trials(4, range(2)), *trials(2, range(1)), *trials(32, range(1), ["healthy", "compute", "send"])]:
        matrix.add(run(trial))
    assert matrix.share_right >= 0.97, "\n".join(matrix.lines())
    assert not matrix.false
    assert sum(matrix.gains) >= 0.8 * len(matrix.gains)
