"""What the user asks for, before anything is looked up."""

from __future__ import annotations

from msgspec import Struct, structs

LOST_AFTER_S = 60.0


class JobSpec(Struct, frozen=True, kw_only=True):
    """One job. `flags` are the backend's own, as the user gave them but for -H and the hosts file, which distmon reads itself.

    The fields before it repeat what the plan must understand.
    """

    command: list[str]
    np: int
    min_np: int | None = None
    max_np: int | None = None
    hosts: str = ""
    """As in -H: name:slots,..."""
    hostfile: str = ""
    discovery_script: str = ""
    network_interfaces: list[str] = []
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    flags: list[str] = []
    timeline: str = ""
    """Where the flags or the environment tell Horovod to write its timeline."""
    fusion_threshold_bytes: int | None = None
    """Of Horovod's fusion buffer, by the flags or the environment; None where it is not known, or changes."""
    backend: str = "horovod"
    cwd: str
    environment: dict[str, str]
    lost_after_s: float = LOST_AFTER_S
    """A host that says nothing for so long is given up; 0: never."""

    def writing_timeline(self, file: str) -> JobSpec:
        """The same with a timeline of Horovod's."""
        return structs.replace(self, flags=[*self.flags, "--timeline-filename", file], timeline=file)

    @property
    def elastic(self) -> bool:
        """Whether Horovod runs the job in its elastic mode."""
        return bool(self.discovery_script) or self.min_np is not None
