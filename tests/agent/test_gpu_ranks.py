"""Which rank is shown on which GPU: the driver's processes, through containers' namespaces, and what ranks may see."""

from __future__ import annotations

from pathlib import Path

import pytest

from distmon.agent.gpu_ranks import GpuRanks, GpuUser
from distmon.agent.sensors.base import Roots
from distmon.core.events import GpuProcess, GpuReading

HOSTS_NAMESPACE = "pid:[4026531836]"


def proc(folder: Path, namespace: str = HOSTS_NAMESPACE) -> Roots:
    (folder / "proc/self/ns").mkdir(parents=True)
    (folder / "proc/self/ns/pid").symlink_to(namespace)
    return Roots(folder / "proc", folder / "sys")


def process(roots: Roots, *pids: int) -> None:
    """A process of the host; with a second pid it is in a container, where it has that one."""
    (roots.proc / str(pids[0])).mkdir()
    columns = "\t".join(map(str, pids))
    (roots.proc / str(pids[0]) / "status").write_text(f"Name:\tpython\nTgid:\t{pids[0]}\nNSpid:\t{columns}\nThreads:\t1\n")


def gpus(*pids: list[int], names: tuple[str, ...] = ("A10", "A10", "A10", "A10")) -> list[GpuReading]:
    """A GPU for each list of the driver's pids."""
    return [
        GpuReading(index=i, uuid=f"GPU-{i}", name=names[i], processes=[GpuProcess(pid=pid) for pid in own])
        for i, own in enumerate(pids)
    ]


def user(pid: int, rank: int, **environment: str) -> GpuUser:
    return GpuUser(pid, rank, rank, environment)


def test_the_drivers_processes_say_more_than_the_environment(tmp_path: Path) -> None:
    roots = proc(tmp_path)
    process(roots, 500)
    ranks = GpuRanks(roots)
    ranks.watch("w0", user(500, 0))
    shown = ranks.assign(gpus([], [500, 77]))
    assert [gpu.ranks for gpu in shown] == [[], [0]]
    assert [(listed.pid, listed.rank) for listed in shown[1].processes] == [(500, 0), (77, None)]
    assert shown[1].notes == {}


def test_a_rank_in_a_container_is_found_by_its_pid_in_there(tmp_path: Path) -> None:
    roots = proc(tmp_path)
    process(roots, 9000, 50)
    process(roots, 50)  # of the host, and no rank
    ranks = GpuRanks(roots)
    ranks.watch("w0", user(50, 3))
    assert [gpu.ranks for gpu in ranks.assign(gpus([], [9000]))] == [[], [3]]


def test_the_same_pid_in_two_containers_says_nothing(tmp_path: Path) -> None:
    roots = proc(tmp_path)
    process(roots, 9000, 50)
    process(roots, 9001, 50)
    ranks = GpuRanks(roots)
    ranks.watch("w0", user(50, 0, CUDA_VISIBLE_DEVICES="1"))
    ranks.watch("w1", user(50, 1, CUDA_VISIBLE_DEVICES="0"))
    shown = ranks.assign(gpus([9000], [9001]))
    assert [gpu.ranks for gpu in shown] == [[1], [0]]
    assert [listed.rank for gpu in shown for listed in gpu.processes] == [None, None]


def test_inside_a_container_the_drivers_pids_mean_other_processes(tmp_path: Path) -> None:
    roots = proc(tmp_path, "pid:[4026532999]")
    process(roots, 50)
    ranks = GpuRanks(roots)
    ranks.watch("w0", user(50, 0, CUDA_VISIBLE_DEVICES="0"))
    assert [gpu.ranks for gpu in ranks.assign(gpus([], [50]))] == [[0], []]


@pytest.mark.parametrize(("listed", "shown"), [((51, 50), [[1], [0]]), ((51, 9000), [[0], [1]])], ids=["own pids", "the host's"])
def test_a_driver_that_tells_a_container_its_own_pids_is_believed(
    listed: tuple[int, int], shown: list[list[int]], tmp_path: Path
) -> None:
    ranks = GpuRanks(proc(tmp_path, "pid:[4026532999]"))
    for rank in (0, 1):
        ranks.watch(f"w{rank}", user(50 + rank, rank, CUDA_VISIBLE_DEVICES="0,1"))
    assert [gpu.ranks for gpu in ranks.assign(gpus([listed[0]], [listed[1]]))] == shown


def test_until_the_driver_lists_a_rank_its_environment_counts_and_that_is_said(tmp_path: Path) -> None:
    roots = proc(tmp_path)
    ranks = GpuRanks(roots)
    ranks.watch("w1", user(500, 1, CUDA_VISIBLE_DEVICES="2,3"))
    before = ranks.assign(gpus([], [], [], []))
    assert [gpu.ranks for gpu in before] == [[], [], [], [1]]
    assert before[3].notes["ranks"].startswith("by the devices that the rank may see")
    process(roots, 500)
    after = ranks.assign(gpus([], [], [500], []))
    assert [gpu.ranks for gpu in after] == [[], [], [1], []]
    assert after[3].notes == {}


def test_a_mapping_on_two_models_is_shown_as_uncertain(tmp_path: Path) -> None:
    ranks = GpuRanks(proc(tmp_path))
    ranks.watch("w0", user(500, 0, CUDA_VISIBLE_DEVICES="0"))
    shown = ranks.assign(gpus([], [], names=("GTX 1050", "RTX A6000")))
    assert shown[0].ranks == [0]
    assert shown[0].notes["ranks"].startswith("uncertain: 2 GPU models")


def test_a_rank_on_a_mig_instance_is_shown_there(tmp_path: Path) -> None:
    ranks = GpuRanks(proc(tmp_path))
    ranks.watch("w0", user(500, 0, CUDA_VISIBLE_DEVICES="MIG-9"))
    split = [GpuReading(index=0, uuid="GPU-0"), *(GpuReading(index=0, instance=n, uuid=f"MIG-{n}") for n in (7, 9))]
    assert [gpu.ranks for gpu in ranks.assign(split)] == [[], [], [0]]


def test_ranks_that_change_or_leave(tmp_path: Path) -> None:
    ranks = GpuRanks(proc(tmp_path))
    ranks.watch("w0", user(500, 0, CUDA_VISIBLE_DEVICES="0"))
    ranks.assign(gpus([]))
    ranks.watch("w0", user(500, 5, CUDA_VISIBLE_DEVICES="0"))
    assert ranks.assign(gpus([]))[0].ranks == [5]
    ranks.forget("w0")
    assert ranks.assign(gpus([]))[0].ranks == []


@pytest.mark.parametrize("pids", [[1], [1, 2]])
def test_processes_that_are_gone_are_nobodys(tmp_path: Path, pids: list[int]) -> None:
    ranks = GpuRanks(proc(tmp_path))
    ranks.watch("w0", user(1, 0, CUDA_VISIBLE_DEVICES=""))
    assert ranks.assign(gpus(pids))[0].ranks == []
