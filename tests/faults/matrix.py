"""The faults, each a function of a scene with ranks that are training, and what may be missing after it."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from typing import NamedTuple

from tests.faults.scene import STEPPING, TRAINING, Scene

KILLS = 4


def nothing(scene: Scene, dice: random.Random) -> None:
    """For comparison."""
    scene.run_for(2)


def late_recorder(scene: Scene, dice: random.Random) -> None:
    """The recorder starts when the ranks have long been training."""
    scene.run_for(2)
    scene.start_recorder()
    scene.run_for(1)


def recorder_killed(scene: Scene, dice: random.Random) -> None:
    """SIGKILL at a random moment, and a new one for the same file, several times."""
    for _ in range(KILLS):
        scene.run_for(dice.uniform(0.2, 1.5))
        scene.signal_recorder(signal.SIGKILL)
        scene.run_for(dice.uniform(0.1, 0.7))
        scene.start_recorder()
    scene.run_for(1)


def recorder_ended(scene: Scene, dice: random.Random) -> None:
    """As with Ctrl-C, and started again."""
    scene.run_for(1)
    scene.signal_recorder(signal.SIGTERM)
    scene.run_for(1)
    scene.start_recorder()
    scene.run_for(1)


def recorder_stopped(scene: Scene, dice: random.Random) -> None:
    """A reader that takes nothing for longer than the agent remembers it."""
    scene.run_for(1)
    scene.signal_recorder(signal.SIGSTOP)
    scene.run_for(11)
    scene.signal_recorder(signal.SIGCONT)
    scene.run_for(1)


def agent_killed(scene: Scene, dice: random.Random) -> None:
    """SIGKILL at a random moment, and a new agent with the same journal, several times."""
    for _ in range(KILLS):
        scene.run_for(dice.uniform(0.2, 1.5))
        scene.signal_agent(signal.SIGKILL)
        scene.run_for(dice.uniform(0.1, 0.7))
        scene.start_agent()
    scene.run_for(1)


def agent_stopped(scene: Scene, dice: random.Random) -> None:
    """Hung for five seconds."""
    scene.run_for(1)
    scene.signal_agent(signal.SIGSTOP)
    scene.run_for(5)
    scene.signal_agent(signal.SIGCONT)
    scene.run_for(1)


def both_killed(scene: Scene, dice: random.Random) -> None:
    """Agent and recorder at once."""
    for _ in range(2):
        scene.run_for(dice.uniform(0.2, 1.5))
        scene.signal_agent(signal.SIGKILL)
        scene.signal_recorder(signal.SIGKILL)
        scene.start_agent()
        scene.start_recorder()
    scene.run_for(1)


def _cut_for(scene: Scene, seconds: float) -> None:
    scene.run_for(1)
    scene.cluster.cut(scene.node)
    scene.run_for(seconds)
    scene.cluster.heal(scene.node)
    scene.run_for(1)


def network_cut(scene: Scene, dice: random.Random) -> None:
    """The link is down for longer than either side waits for a sign of life."""
    _cut_for(scene, 12)


def network_cut_for_a_minute(scene: Scene, dice: random.Random) -> None:
    """The link is down for 60 s."""
    _cut_for(scene, 60)


def agent_killed_while_cut(scene: Scene, dice: random.Random) -> None:
    """The link is down, and the agent dies and comes again before it is up."""
    scene.run_for(1)
    scene.cluster.cut(scene.node)
    scene.run_for(1)
    scene.signal_agent(signal.SIGKILL)
    scene.run_for(0.5)
    scene.start_agent()
    scene.run_for(2)
    scene.cluster.heal(scene.node)
    scene.run_for(1)


def rank_killed(scene: Scene, dice: random.Random) -> None:
    """SIGKILL of a rank at a random moment, most likely within a step."""
    scene.run_for(dice.uniform(0.5, 1.5))
    scene.kill_rank(1)
    scene.run_for(1)


def journal_disk_full(scene: Scene, dice: random.Random) -> None:
    """No room for the journal for a while; a viewer is connected."""
    scene.run_for(1)
    scene.fill_disk()
    scene.run_for(3)
    scene.free_disk()
    scene.run_for(1)


def journal_too_small(scene: Scene, dice: random.Random) -> None:
    """The recorder is away for longer than the journal holds, and the agent's memory is gone too: the loss must be told."""
    scene.run_for(1)
    scene.signal_recorder(signal.SIGKILL)
    scene.run_for(25)
    scene.signal_agent(signal.SIGKILL)
    scene.start_agent()
    scene.start_recorder()
    scene.run_for(1)


def all_while_pytorch_trains(scene: Scene, dice: random.Random) -> None:
    """A real training of two ranks: agent and recorder are killed, alone and at once, and the link is cut."""
    for of_agent, of_recorder in ((True, False), (False, True), (True, True)):
        scene.run_for(dice.uniform(0.2, 0.8))
        if of_agent:
            scene.signal_agent(signal.SIGKILL)
        if of_recorder:
            scene.signal_recorder(signal.SIGKILL)
        scene.run_for(dice.uniform(0.1, 0.4))
        if of_agent:
            scene.start_agent()
        if of_recorder:
            scene.start_recorder()
    _cut_for(scene, 2)


class Fault(NamedTuple):
    inject: Callable[[Scene, random.Random], None]
    short: bool = False
    """Part of `make test`."""
    recorder_from_start: bool = True
    disk_bytes: int = 0
    """Size of the disk of the journal, where it is a small one."""
    journal_mb: float = 64.0
    may_lose: bool = False
    """Where the loss has to be told instead."""
    program: str = STEPPING
    """What the ranks run."""

    @property
    def name(self) -> str:
        return self.inject.__name__.replace("_", " ")


FAULTS = [
    Fault(nothing),
    Fault(late_recorder, recorder_from_start=False),
    Fault(recorder_killed, short=True),
    Fault(recorder_ended),
    Fault(recorder_stopped),
    Fault(agent_killed, short=True),
    Fault(agent_stopped),
    Fault(both_killed),
    Fault(network_cut, short=True),
    Fault(network_cut_for_a_minute),
    Fault(agent_killed_while_cut),
    Fault(rank_killed),
    Fault(journal_disk_full, disk_bytes=1 << 20),
    Fault(all_while_pytorch_trains, short=True, program=TRAINING),
    Fault(journal_too_small, journal_mb=0.2, may_lose=True),
]
