"""Names of hosts as short as still tells them apart: without what all of them begin and end with."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import takewhile

LONGEST = 9
"""Names of at most so many characters are shown in full: there is room for them on every screen."""
_SEPARATOR = re.compile(r"[-._]")


def common_parts(names: Collection[str]) -> tuple[str, str]:
    """(what all names begin with, up to a separator; what they end with, from one on). Empty where they are short or one.

    Where only numbers would be left, the word before them stays, if there is room for it.
    """
    if len(names) < 2 or max(map(len, names)) <= LONGEST:
        return "", ""
    prefix = _shared(list(names))
    ends = [name[len(prefix) :] for name in names]
    suffix = _shared([end[::-1] for end in ends])[::-1]
    room = LONGEST - max(map(len, ends)) + len(suffix)
    word = re.search(r"[^-._]+[-._]$", prefix)
    if word is not None and len(word[0]) <= room and any(end[0].isdigit() for end in ends):
        prefix = prefix[: word.start()]
    return prefix, suffix


def _shared(names: Sequence[str]) -> str:
    """What all begin with, up to the last separator in it; something is left of each."""
    pairs = zip(min(names), max(names), strict=False)
    shared = "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    shortest = min(map(len, names))
    return shared[: max((cut.end() for cut in _SEPARATOR.finditer(shared) if cut.end() < shortest), default=0)]
