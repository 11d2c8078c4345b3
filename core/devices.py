"""Which GPU a rank uses, from what its environment lets it see: CUDA's rules for CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER,
ROCm's for ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES, and which GPUs its container was given.

The driver's own numbers, which monitors show, know nothing of these variables. A rank takes the device of its local rank
among those that it sees, as Horovod's examples do; where the driver lists a rank's process on a GPU, that says more than this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

ROCM_VISIBLE, HIP_VISIBLE = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"
CONTAINER = "NVIDIA_VISIBLE_DEVICES"
VISIBLE, ORDER, BY_BUS = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "PCI_BUS_ID"


class Device(Struct, frozen=True):
    """A GPU by the driver's number, which follows the PCI bus; `instances` are the UUIDs of its MIG instances by their number."""

    index: int
    uuid: str = ""
    name: str = ""
    instances: Mapping[int, str] | None = None
    """None where MIG is off."""


class Place(Struct, frozen=True):
    """A GPU, and the MIG instance on it (None: all of it)."""

    index: int
    instance: int | None = None


class Choice(Struct, frozen=True):
    """`place` is None where the rank sees no GPU or none can be told for it; `doubt` says why the place may be another."""

    place: Place | None
    doubt: str = ""


def device_of(devices: Sequence[Device], environment: Mapping[str, str], local_rank: int) -> Choice:
    """The GPU of one rank. With a single visible device it is that one, whatever the local rank."""
    places = visible_devices(devices, environment)
    if not places:
        return Choice(None)
    if len(places) > 1 and local_rank >= len(places):
        return Choice(None, f"local rank {local_rank} sees {len(places)} GPUs")
    return Choice(places[local_rank if len(places) > 1 else 0], _doubt(devices, environment))


def visible_devices(devices: Sequence[Device], environment: Mapping[str, str]) -> list[Place]:
    """What CUDA or HIP shows to a process, in its order. Of a machine with GPUs of both makers only NVIDIA's are told."""
    nvidia = [device for device in devices if not _is_amd(device)]
    order = sorted(nvidia or devices, key=lambda device: device.index)
    if nvidia:
        order = _of_the_container(order, environment.get(CONTAINER, ""))
        places = _shown(_numbered(order), environment.get(VISIBLE))
        return _usable([Place(order[place.index].index, place.instance) for place in places])
    # ROCm hides devices, then HIP, which heeds CUDA's variable as well, counts the rest anew and hides of these.
    for value in (environment.get(ROCM_VISIBLE), environment.get(HIP_VISIBLE, environment.get(VISIBLE))):
        order = [order[place.index] for place in _shown(_numbered(order), value)]
    return [Place(device.index) for device in order]


def _is_amd(device: Device) -> bool:
    """NVIDIA's UUIDs begin with GPU-; AMD's do not, and its driver may tell none."""
    return not device.uuid.startswith("GPU-") if device.uuid else device.name.startswith("AMD")


def _numbered(devices: Sequence[Device]) -> list[Device]:
    """As a process counts those that it sees."""
    return [replace(device, index=number) for number, device in enumerate(devices)]


def _of_the_container(devices: list[Device], value: str) -> list[Device]:
    """Those that a container was given by their UUIDs, as Kubernetes does. Numbers tell nothing: they are the host's, and whoever
    made `devices` may be in the container as well."""
    entries = [entry.strip() for entry in value.split(",")]
    if not all(entry.startswith(("GPU-", "MIG-")) for entry in entries):
        return devices
    given = {place for entry in entries if (place := _find(devices, entry)) is not None}
    found: list[Device] = []
    for device in devices:
        instances = {number: uuid for number, uuid in _instances(device).items() if Place(device.index, number) in given}
        if instances or _whole(device) in given:
            found.append(replace(device, instances=instances) if instances else device)
    return found or devices


def _shown(devices: Sequence[Device], value: str | None) -> list[Place]:
    """By one variable. Entries from the first bad one on are hidden; a repeated device hides all."""
    if value is None:
        return [_whole(device) for device in devices]
    places: list[Place] = []
    for entry in value.split(","):
        place = _find(devices, entry.strip())
        if place is None:
            break
        if place in places:
            return []
        places.append(place)
    return places


def _find(devices: Sequence[Device], entry: str) -> Place | None:
    """One entry: a number, a UUID or the start of one, a MIG instance's UUID, or MIG-GPU-uuid/instance/compute instance."""
    number = _number(entry)
    if number is not None:
        return next((_whole(device) for device in devices if device.index == number), None)
    if entry.startswith("MIG-GPU-"):
        uuid, _, rest = entry.removeprefix("MIG-").partition("/")
        instance = _number(rest.partition("/")[0])
        return next((Place(d.index, instance) for d in devices if d.uuid == uuid and instance in _instances(d)), None)
    if entry.startswith("MIG-"):
        instances = [(d.index, number, uuid) for d in devices for number, uuid in _instances(d).items()]
        return _only([Place(index, number) for index, number, uuid in instances if uuid.startswith(entry)])
    if entry.startswith("GPU-"):
        # ROCm writes GPU- before a number that the kernel tells without it.
        bare = entry.removeprefix("GPU-").lower()
        found = [d for d in devices if d.uuid.startswith(entry) or (bare and _is_amd(d) and d.uuid.startswith(bare))]
        return _only([_whole(device) for device in found])
    return None


def _number(text: str) -> int | None:
    """No machine has a device number of more than six digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else None


def _only(places: list[Place]) -> Place | None:
    """A shortened UUID must name one device."""
    return places[0] if len(places) == 1 else None


def _whole(device: Device) -> Place:
    """A GPU that is split into instances is used through its first one."""
    return Place(device.index, min(device.instances) if device.instances else None)


def _usable(places: list[Place]) -> list[Place]:
    """CUDA gives a process one MIG instance, the first that it would see, and no other device beside it."""
    instances = [place for place in places if place.instance is not None]
    return instances[:1] or places


def _instances(device: Device) -> Mapping[int, str]:
    return device.instances or {}


def _doubt(devices: Sequence[Device], environment: Mapping[str, str]) -> str:
    """CUDA numbers the fastest GPU first, which cannot be foretold where models differ; UUIDs are free of that."""
    models = {device.name for device in devices if not _is_amd(device)}
    if len(models) < 2 or environment.get(ORDER) == BY_BUS:
        return ""
    value = environment.get(VISIBLE)
    if value is not None and not value.split(",")[0].strip().isdigit():
        return ""
    return f"uncertain: {len(models)} GPU models, which CUDA numbers by speed unless {ORDER}={BY_BUS}"
