"""What a column is, by its name as people publish it: `Images/sec`, `# GPUs`, `Time (s)`."""

from __future__ import annotations

import re

_UNIT = r"(images|samples|examples|tokens|steps|records|sequences|frames)_(per_)?(s|sec|second)"
_EACH = r"per_(gpu|worker|rank|card|node|device|board|process)"
_WHOLE = r"(task|total|wall|wall_clock|train|training|run|job|elapsed|execution|epoch|step)"
_TIMED = rf"({_WHOLE}(_time)?|time|duration|runtime|time_per_epoch)"

SIZE = re.compile(r"workers|ranks|gpus|nodes|cards|boards|devices|processes|procs|world_size|np|fixed_nodes", re.IGNORECASE)
RATE = re.compile(rf"{_UNIT}|throughput((?!_{_EACH})\w)*|img_s", re.IGNORECASE)
RATE_EACH = re.compile(rf"{_UNIT}_{_EACH}|(throughput|speed)\w*_{_EACH}", re.IGNORECASE)
TIME = re.compile(rf"{_TIMED}_(s|sec|seconds)|seconds", re.IGNORECASE)
OTHER_TIME = re.compile(rf"{_TIMED}_(ms|minutes|h)|hours|{_WHOLE}_time|time|duration|runtime|time_per_epoch", re.IGNORECASE)
"""Times in other units, or of none that is told: good for quotients."""
WORK = re.compile(r"(images|samples|examples|records)_per_(task|epoch|run|worker)", re.IGNORECASE)
ALL_WORK = re.compile(r"(total_)?(images|samples|examples|records)", re.IGNORECASE)
ENERGY = re.compile(r"(total_)?energy_j|joules", re.IGNORECASE)
POWER = re.compile(r"(power|total_power|board_power)_w|watts", re.IGNORECASE)
SPEEDUP = re.compile(r"speedup(_printed|_x)?", re.IGNORECASE)
SPEEDUP_SPEED = re.compile(r"speedup_(by_)?(speed|throughput)(_printed|_x)?|(speed|throughput)_speedup", re.IGNORECASE)
SPEEDUP_TIME = re.compile(r"speedup_(by_)?time(_printed|_x)?|time_speedup", re.IGNORECASE)
EFFICIENCY = re.compile(r"((strong_|weak_)?scaling_|parallel_)?efficiency(_printed|_pct|_percent)*", re.IGNORECASE)
SPEEDUP_PERCENT = re.compile(r"speedup(_printed)?_(pct|percent)", re.IGNORECASE)
"""Of the ideal, as some write the efficiency, or of one worker."""
COMMUNICATION = re.compile(r"communication\w*", re.IGNORECASE)
DIFFERENCE = re.compile(r"difference\w*", re.IGNORECASE)
SETTING = re.compile(r"(\w+[ _])?batch([ _]?size)?|(image|input)[ _]size|resolution|sequence[ _]length", re.IGNORECASE)
"""What a row was run with, in numbers."""
_OTHERS = re.compile(r"epoch|epochs|minutes|run|event|after_epoch", re.IGNORECASE)
_SPEEDUPS = (SPEEDUP, SPEEDUP_SPEED, SPEEDUP_TIME, SPEEDUP_PERCENT, EFFICIENCY)
_MEASURED = (SIZE, RATE, RATE_EACH, TIME, OTHER_TIME, WORK, ALL_WORK, ENERGY, POWER, *_SPEEDUPS)

_WORDS = {
    "img": "images", "imgs": "images", "image": "images", "sample": "samples", "example": "examples", "token": "tokens",
    "seq": "sequences", "frame": "frames", "pct": "percent", "sec": "s", "secs": "s", "second": "s", "seconds": "s",
    "min": "minutes", "mins": "minutes", "hr": "h", "hrs": "h", "hour": "h", "hours": "h", "msec": "ms",
}  # fmt: skip
_BRACKETS = re.compile(r"(.+?)\s*[(\[]\s*(.+?)\s*[)\]]")


def plain_name(written: str) -> str:
    """The name under which a column is understood; as written where that has no meaning here: it may be a run's or a phase's."""
    written = written.strip()
    bracketed = _BRACKETS.fullmatch(written)
    if bracketed is None:
        name = _plain(written)
        return name if is_known(name) else written
    stem, unit = _plain(bracketed[1]), _plain(bracketed[2], of_unit=True)
    if RATE.fullmatch(unit):
        each = re.search(_EACH, stem)
        return f"{unit}_{each[0]}" if each else unit
    name = stem if unit == "x" or stem.endswith(f"_{unit}") else f"{stem}_{unit}"
    if is_known(name):
        return name
    return f"{bracketed[1]}_s" if unit == "s" else written


def is_known(name: str) -> bool:
    return is_measured(name) or any(role.fullmatch(name) for role in (COMMUNICATION, DIFFERENCE, _OTHERS))


def is_measured(name: str) -> bool:
    """Whether only values above 0 say anything."""
    return any(role.fullmatch(name) for role in _MEASURED)


def _plain(text: str, *, of_unit: bool = False) -> str:
    """In small letters, words apart by _, units in one spelling. A word of time that stands alone is a column's name, no unit."""
    text = re.sub(r"speed[- ]up", "speedup", text.lower()).replace("/", " per ").replace("%", " percent ")
    words = [word for word in re.split(r"[\W_]+", text) if word]
    plain = [_WORDS.get(word, word) for word in words]
    if len(words) == 1 and not of_unit and plain[0] in ("s", "minutes", "h"):
        plain = words
    name = re.sub(r"^(number_of|num_of|no_of|num|no|n)_", "", "_".join(plain))
    name = re.sub(r"^(gpu|node|worker|rank|device)_count$", r"\1s", name)
    return re.sub(rf"^(images|samples|tokens|sequences)_({_EACH})_per_s$", r"\1_per_s_\2", name)
