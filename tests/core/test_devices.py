"""Which GPU a rank uses: the table of case HW-07, and CUDA's rules beyond it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distmon.core.devices import Choice, Device, Place, device_of, visible_devices

CASES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data/cases/HW-07/cases.json").read_text())
FOUR = [Device(item["index"], item["uuid"], item["name"]) for item in CASES["devices"]]
SPLIT = [
    Device(0, "GPU-aaaa", "H100", {7: "MIG-1111-70", 9: "MIG-1111-90"}),
    Device(1, "GPU-bbbb", "H100", {}),
    Device(2, "GPU-cccc", "H100"),
]


@pytest.mark.parametrize("row", CASES["rows"], ids=lambda row: f"{row['env']}-{row['local_rank']}")
def test_case_hw_07(row: dict[str, Any]) -> None:
    choice = device_of(FOUR, row["env"], row["local_rank"])
    index = choice.place.index if choice.place else None
    assert index in row["gpu_any_of"] if "gpu_any_of" in row else index == row["gpu"]
    assert choice.doubt == ""
    if row.get("gpu") is not None:
        assert CASES["util"][row["gpu"]] == row["util"]


def test_case_hw_07_two_models_are_uncertain_unless_the_order_or_a_uuid_is_given() -> None:
    mixed = [Device(index, f"GPU-{index}", name) for index, name in enumerate(CASES["mixed_models"]["devices"])]
    environment = CASES["mixed_models"]["env"]
    assert device_of(mixed, environment, 0).doubt.startswith("uncertain: 2 GPU models")
    assert device_of(mixed, {}, 1).doubt.startswith("uncertain")
    assert device_of(mixed, environment | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, 0) == Choice(Place(0))
    assert device_of(mixed, {"CUDA_VISIBLE_DEVICES": "GPU-1"}, 0) == Choice(Place(1))
    assert device_of(mixed, environment | {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, 0).doubt


@pytest.mark.parametrize(
    ("value", "places"),
    [
        ("MIG-1111-90", [Place(0, 9)]),
        ("MIG-GPU-aaaa/9/0", [Place(0, 9)]),
        ("MIG-GPU-aaaa/8/0", []),
        ("MIG-1111", []),  # the start of two
        ("MIG-1111-90,MIG-1111-70", [Place(0, 9)]),  # one instance for a process
        ("0", [Place(0, 7)]),
        ("0,2", [Place(0, 7)]),
        ("2", [Place(2)]),
        ("1", [Place(1)]),  # MIG on and no instance made yet
        ("GPU-cccc", [Place(2)]),
        ("GPU-", []),
        ("2,2", []),
        ("2,GPU-cccc", []),
        (" 2 ", [Place(2)]),
        ("2x", []),
        ("²", []),
        ("MIG-GPU-aaaa/²/0", []),
        ("9" * 5000, []),
        ("NoDevFiles", []),
        ("2,-1,0", [Place(2)]),
    ],
)
def test_instances_uuids_and_bad_entries(value: str, places: list[Place]) -> None:
    assert visible_devices(SPLIT, {"CUDA_VISIBLE_DEVICES": value}) == places


@pytest.mark.parametrize(
    ("given", "visible", "places"),
    [
        ("GPU-cccc", None, [Place(2)]),
        ("GPU-cccc", "0", [Place(2)]),
        ("GPU-cccc", "2", []),
        ("GPU-cccc,GPU-bbbb", "1,0", [Place(2), Place(1)]),
        ("MIG-1111-90", "0", [Place(0, 9)]),
        ("GPU-elsewhere", "1", [Place(1)]),  # not of this list of GPUs: nothing can be told from it
        ("2", "1", [Place(1)]),
        ("all", None, [Place(0, 7)]),
        ("void", "2", [Place(2)]),
    ],
)
def test_a_container_counts_the_gpus_that_it_was_given(given: str, visible: str | None, places: list[Place]) -> None:
    environment = {"NVIDIA_VISIBLE_DEVICES": given} | ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    assert visible_devices(SPLIT, environment) == places


AMD = [Device(0, "aa11", "Instinct MI250"), Device(1, "bb22", "Instinct MI250"), Device(2, "", "AMD GPU 0x740f")]


@pytest.mark.parametrize(
    ("environment", "places"),
    [
        ({}, [0, 1, 2]),
        ({"HIP_VISIBLE_DEVICES": "2,0"}, [2, 0]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [1]),
        ({"HIP_VISIBLE_DEVICES": "2", "CUDA_VISIBLE_DEVICES": "1"}, [2]),
        ({"ROCR_VISIBLE_DEVICES": "2,1", "HIP_VISIBLE_DEVICES": "1"}, [1]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-BB22,0"}, [1, 0]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-"}, []),
        ({"HIP_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_amd_s_variables(environment: dict[str, str], places: list[int]) -> None:
    assert visible_devices(AMD, environment) == [Place(index) for index in places]


def test_beside_nvidia_s_gpus_amd_s_do_not_count() -> None:
    both = [*FOUR, Device(4, "", "AMD GPU 0x1638")]
    assert visible_devices(both, {"HIP_VISIBLE_DEVICES": "1"}) == [Place(index) for index in range(4)]
    assert device_of(both, {}, 3) == Choice(Place(3))


def test_a_local_rank_beyond_what_is_visible_gets_no_gpu_and_a_reason() -> None:
    assert device_of(FOUR, {"CUDA_VISIBLE_DEVICES": "2,3"}, 2) == Choice(None, "local rank 2 sees 2 GPUs")
    assert device_of([], {}, 0) == Choice(None)


@given(st.text(alphabet="0123456789,-GPUMIG/abc ", max_size=30), st.integers(0, 9))
def test_no_value_of_the_variable_is_an_error(value: str, local_rank: int) -> None:
    place = device_of(SPLIT, {"CUDA_VISIBLE_DEVICES": value}, local_rank).place
    assert place is None or place.index in (0, 1, 2)
