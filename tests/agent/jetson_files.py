"""Files and programs that tests of a Jetson's sensors lay out."""

from __future__ import annotations

from pathlib import Path

SECOND = 10**9
DEADLINE_S = 20.0


def write(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def monitor(folder: Path, **channels: tuple[str, int, int]) -> None:
    """An INA3221 as JetPack 5 and later show it: channel -> label, millivolts, milliamperes."""
    write(folder / "name", "ina3221")
    for channel, (label, volts, amperes) in channels.items():
        write(folder / f"in{channel[2:]}_label", label)
        write(folder / f"in{channel[2:]}_input", volts)
        write(folder / f"curr{channel[2:]}_input", amperes)
