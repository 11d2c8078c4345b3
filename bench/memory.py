"""What a page costs that a process has not touched for a second, and how to have it cost next to nothing.

The hosts of some virtual machines take idle memory's pages from their tables: a program that sleeps a second then pays tens of
microseconds for each page when it wakes, whatever it does with it. So an agent, a viewer or an exporter seems to take five to
ten times what it takes on other machines, and figures of different hours cannot be held beside each other. It does not happen
while another process keeps going over memory.
"""

from __future__ import annotations

import mmap
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

PAGES = 1024
DEAR_US = 1.0
"""Where memory is not taken away, a page costs a tenth of that."""
PAUSE_S = 1.0
KEEPER = """
source, target = bytes(300 << 20), bytearray(300 << 20)
print(flush=True)
while True:
    target[:] = source
"""


def page_cost_us() -> float:
    """Microseconds of CPU for a page that was last touched a second ago: median of 3 pauses."""
    size = PAGES * mmap.PAGESIZE
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.write(bytes(size))
        return statistics.median(_touched_us(memory) for _ in range(3))


def _touched_us(memory: mmap.mmap) -> float:
    time.sleep(PAUSE_S)
    begun = time.thread_time()
    memory[:: mmap.PAGESIZE]
    return (time.thread_time() - begun) * 1e6 / PAGES


@contextmanager
def kept_in_use() -> Iterator[str]:
    """Another process goes over memory meanwhile, where a page would be dear; yields in words what a page costs."""
    before = page_cost_us()
    if before < DEAR_US:
        yield f"a page untouched for a second costs {before:.2f} us"
        return
    keeper = subprocess.Popen([sys.executable, "-S", "-c", KEEPER], stdout=subprocess.PIPE)
    try:
        assert keeper.stdout is not None
        keeper.stdout.readline()
        yield (
            f"a page untouched for a second costs {before:.1f} us on this machine, {page_cost_us():.1f} while another process "
            "goes over memory, as it did here"
        )
    finally:
        keeper.kill()
        keeper.communicate()
