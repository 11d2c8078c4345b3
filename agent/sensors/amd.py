"""AMD GPUs: through AMD's binding `amdsmi` where it is installed and lets us in, else from the kernel's files, open to all."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from distmon.agent.sensors.amd_library import AmdLibrary, LibraryAway
from distmon.agent.sensors.amd_sysfs import Card, find_cards
from distmon.agent.sensors.base import Reading, Roots
from distmon.core.events import GpuReading

_LOOK_AGAIN_NS = 60 * 10**9


class AmdSensor:
    fields: tuple[str, ...] = ("gpus",)

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._cards: list[Card] = []
        self._library: AmdLibrary | None = None
        self._away = ""
        self._looked_ns: int | None = None

    def read(self, now_ns: int) -> Reading:
        if self._library is None and (self._looked_ns is None or now_ns - self._looked_ns > _LOOK_AGAIN_NS):
            self._look(now_ns)
        if self._library is not None:
            try:
                return Reading({"gpus": self._library.read(), "sources": {"gpus": "amdsmi"}}, {})
            except LibraryAway as error:
                self._library, self._away = None, str(error)
        # What only the binding tells has this as its reason.
        gpus = [_with_reason(card.read(), self._away) for card in self._cards]
        return Reading({"gpus": gpus}, {"amdsmi": self._away} if gpus else {"gpus": "the AMD GPUs have gone"})

    def _look(self, now_ns: int) -> None:
        self._looked_ns, self._cards = now_ns, find_cards(self._roots)
        try:
            self._library = AmdLibrary()
        except LibraryAway as error:
            self._away = str(error)


def _with_reason(gpu: GpuReading, away: str) -> GpuReading:
    only_there = ("energy_j", "throttle", "processes", "ecc_corrected", "ecc_uncorrected")
    missing: dict[str, Any] = {name: away for name in only_there if not getattr(gpu, name)}
    missing["others"] = "the kernel shows no such file of an AMD GPU"
    return replace(gpu, unavailable=missing | gpu.unavailable)
