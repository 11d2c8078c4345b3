from collections.abc import Callable
from typing import Any

from distmon.core.batches import Batch, Sums

def usual_told(
    kind: type,
    numbers: Any,
    origin: float,
    ranks: list[int],
    workers: list[str],
    first_steps: list[int],
    counts: tuple[int, ...],
    columns: tuple[str, ...],
    /,
) -> list[tuple[int, str, Any]]: ...
def spread_sums(
    most: int, counts: list[int], start_ns: list[int], span_ns: list[int], /, *sums: list[int | None]
) -> bytes | None: ...
def add_batches(
    ranks: dict[int, Any],
    told: list[Any],
    epoch: int | None,
    make: Callable[[int], Any],
    usual: tuple[str, ...],
    prefix: int,
    recent: int,
    summed: bool,
    /,
) -> Sums | None: ...
def sums_of(batches: list[Batch], usual: tuple[str, ...], /) -> Sums | None: ...
def all_new(ranks: dict[int, Any], told: list[Any], back_s: float, pause_s: float, /) -> bool: ...
def arrive(
    ranks: dict[int, Any],
    told: list[Any],
    place: int,
    lead: int | None,
    usual: tuple[str, ...],
    next_step: int,
    block: int,
    most: int,
    /,
) -> tuple[int, int]: ...
def join_block(ranks: dict[int, Any], block: int, /) -> tuple[list[int], int, int] | None: ...
