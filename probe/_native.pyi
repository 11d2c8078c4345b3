"""The types of _native.c as far as ring.py needs them; hot.py holds the rest, which is typed by what stands for it in Python."""

STEP_SLOT_SIZE: int

class Slots:
    def __init__(
        self, keep_alive: object, address: int, header_size: int, head_at: int, capacity: int, record_size: int
    ) -> None: ...
    def next(self) -> int: ...

def step_columns(copied: bytes, record_size: int, first_sequence: int) -> tuple[tuple[int, ...], ...] | None: ...
def read_table(
    descriptor: int, header_size: int, head_at: int, capacity: int, record_size: int, cursor: int, most: int
) -> tuple[int, int, int, int, int, int, int, bytes] | tuple[()] | None: ...
