"""Tables against themselves: what they print agrees, contradicts, or says less than it seems to."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distmon.core.audit.agreement import contradicts, quotient
from distmon.core.audit.audit import Audit, audit
from distmon.core.audit.scaling import communication_share
from distmon.core.audit.table import parse_cell, parse_table
from distmon.core.errors import DistmonError

GOLDEN = Path(os.environ.get("DISTMON_GOLDEN", Path(__file__).parents[3] / "shared" / "golden"))
golden = pytest.mark.skipif(not GOLDEN.is_dir(), reason="the write-ups' tables are not here")


def of(*names: str) -> list[Audit]:
    return audit([parse_table((GOLDEN / name).read_text(), name) for name in names])


def said(one: Audit, kind: str) -> list[str]:
    return [f"{finding.where}: {finding.text}" for finding in one.findings if finding.kind == kind]


@golden
def test_printed_speedups_agree_but_one() -> None:
    (found,) = of("allreduce_speed.csv")
    assert said(found, "contradicts") == ["cpu ResNet50, workers 2: speedup computes to 1.536, printed 1.57"]
    assert len(said(found, "agrees")) == 12
    efficiency = [row[3] for row in found.derived if row[0].startswith("cpu")]
    assert efficiency == ["100.0", "76.8", "64.0", "57.6", "100.0", "71.1", "48.1", "22.9"]
    cautions = "\n".join(said(found, "caution"))
    assert "66.7 % communication the only loss, 33.3 % efficiency would be left; measured 22.9 %: 10.4 points" in cautions
    assert "throughput falls from 680 with 4 to 648: past the best number of workers" in cautions


@golden
def test_phases_that_do_not_add_up_are_told() -> None:
    (found,) = of("allreduce_gpu_phases.csv")
    speeds = [text for text in said(found, "agrees") if "images_per_s" in text]
    off = [float(match[1]) for text in speeds if (match := re.search(r"([\d.]+) % off", text))]
    assert len(off) == 9 and max(off) <= 0.6
    wrong = "\n".join(said(found, "contradicts"))
    assert "= 16.75 s, more than the 13.76 s of the task" in wrong
    assert "add up for Conv2DTranspose and not for ResNet50, MobileNetV2" in wrong
    assert "apply_gradients_s = 11.25 s of 11.65 s" in "\n".join(said(found, "agrees"))
    cautions = "\n".join(said(found, "caution"))
    assert "ResNet50, workers 2: slower than with 1: speedup 0.88" in cautions
    assert "apply_gradients_s falls from 4.16 to 1.35 s" in cautions


@golden
def test_runs_are_compared_only_where_their_work_is_known() -> None:
    (found,) = of("elastic_runs.csv")
    assert not said(found, "contradicts") and len(said(found, "agrees")) == 5
    assert ["names no number of epochs" in text for text in said(found, "caution")] == [True, False, False]
    assert "speedup by time 1.615, efficiency 80.8 %" in said(found, "derived")[0]


@golden
def test_epochs_and_events_are_held_together() -> None:
    epochs, events = of("elastic_epochs.csv", "elastic_events.csv")
    assert said(epochs, "agrees") == ["all epochs: 20 of 20 differences are as printed"]
    assert {"fixed: 20 epochs add up to 1343.90 s", "elastic: 20 epochs add up to 2502.75 s"} <= set(said(epochs, "derived"))
    cautions = "\n".join(said(epochs, "caution"))
    assert "epoch 0 is warm-up: 375 s against 51 s, 7.4 normal epochs' worth" in cautions
    assert "epoch 12 took 675.68 s" in cautions and "epoch 19 took 448.04 s" in cautions
    assert "epochs 13 to 18 took 74 to 80 s" in cautions
    outside = "\n".join(said(events, "derived"))
    assert "304.17 s lie outside" in outside and "269.66 s lie outside" in outside
    split = "\n".join(said(events, "derived"))
    assert "took 1158.8 s longer than those of fixed: 1023.2 s in epochs 12 and 19, 154.6 s below capacity in epochs 13" in split
    parts = "initialisation (initialize_workers) 33.6 s, restart (script setup) 27.1 s, redone (epoch time lost) 115.3 s"
    assert f"epoch 12: 625.4 s longer: {parts}" in split and "unexplained 424.1 to 449.4 s (68 % at least)" in split
    assert "unexplained 680.8 to 731.2 s (67 % at least)" in split
    assert "fixed: of the 304.17 s outside the epochs, events name 53.78 s at most" in "\n".join(said(events, "caution"))
    assert "fixed: loss is 3.8352 in epoch 15 as in the one before" in cautions
    assert "fixed: loss jumps from 3.8352 to 6.1357 in epoch 16" in cautions
    assert "elastic: ends with acc 0.4038, after 0.4915 in epoch 18" in cautions
    (lost,) = said(events, "contradicts")
    assert "counts 200.2 s as lost, while epochs 12 and 19 alone took 1023.2 s longer" in lost


@golden
def test_workers_that_came_and_went_in_vain_are_told_and_runs_agree_with_their_epochs() -> None:
    (alone,) = of("elastic_runs.csv")
    cautions = "\n".join(said(alone, "caution"))
    assert "row 4: 4 fixed_nodes with 4 elastic_nodes took 110.6 s longer than 4 fixed_nodes alone" in cautions
    assert "row 5: 4 fixed_nodes with 4 elastic_nodes took 837.0 s longer" in cautions
    _, _, runs = of("elastic_epochs.csv", "elastic_events.csv", "elastic_runs.csv")
    assert len(said(runs, "agrees")) == 5 + 8 and not said(runs, "contradicts")


@golden
def test_a_phase_that_would_have_to_lie_in_another_is_named() -> None:
    (found,) = of("allreduce_gpu_phases.csv")
    nested = said(found, "derived")
    assert len(nested) == 4 and all("were tensor_numpy_s a part of allreduce_s" in text for text in nested)
    assert "11.71 of 13.76 s: 2.05 s (14.9 %) would be left" in nested[0]
    cautions = "\n".join(said(found, "caution"))
    assert (
        "Conv2DTranspose, workers 2: tensor_numpy_s is 9.36 s, though the task takes only 2.29 s longer than with 1" in cautions
    )
    assert "Conv2DTranspose, workers 2: allreduce_s" not in cautions


@golden
def test_watts_of_many_boards_are_a_sum() -> None:
    (found,) = of("jetson_summary.csv")
    assert [re.findall(r"are ([\d.]+) W", text)[0] for text in said(found, "derived")] == ["4", "4.5", "6.5", "7"]
    assert not said(found, "contradicts")


def table(text: str) -> Audit:
    return audit([parse_table(text, "t.csv")])[0]


def test_a_row_that_its_epochs_contradict_is_told() -> None:
    epochs = "epoch,a_s,a_loss\n0,10,2.5\n1,11,1.25\n"
    events = "run,after_epoch,event,seconds\na,1,total time,25.04\n"
    runs = "nodes,epochs,seconds,loss\n2,2,25.0,1.4\n"
    found = audit([parse_table(text, name) for name, text in (("e", epochs), ("v", events), ("r", runs))])[2]
    assert said(found, "contradicts") == ["row 1: loss of the last epoch of a computes to 1.2500, printed 1.4"]


def test_events_longer_than_the_epoch_that_they_are_named_after_lie_outside_it() -> None:
    epochs = "epoch,a_s,b_s\n0,10,10\n1,10,10\n2,10,10\n3,40,10\n"
    events = "run,after_epoch,event,seconds\na,2,restart,50\n"
    found = audit([parse_table(epochs, "e"), parse_table(events, "v")])[1]
    assert "a, epoch 3: 30.0 s longer, less than its events name: restart 50.0 s" in "\n".join(said(found, "derived"))


def test_cells_that_are_no_numbers_are_told_and_shares_are_numbers() -> None:
    found = table("gpus,samples_per_s,communication,gpu_pct\n1,100,0%,20-80\n2,190,10:1,95\n")
    assert said(found, "caution")[-1] == "gpu_pct: 20-80: a range or a remark and no number, of which no mean can be had"


def test_a_watt_total_that_does_not_grow_is_told() -> None:
    found = table("library,cards,power_w\na,1,5\na,8,6\n")
    assert "grows much less than the boards" in said(found, "contradicts")[0]


@pytest.mark.parametrize(
    ("column", "printed", "wrong"),
    [
        ("efficiency", "0.91", False),
        ("efficiency", "0.80", True),
        ("efficiency", "91", False),
        ("efficiency_percent", "91.2", False),
        ("efficiency_percent", "0.91", True),
        ("speedup", "1.82", False),
        ("speedup", "1.9", True),
        ("speedup", "", False),
    ],
)
def test_efficiency_is_read_as_share_or_percent(column: str, printed: str, wrong: bool) -> None:
    found = table(f"gpus,samples_per_s,{column}\n1,100.0,\n2,182.4,{printed}\n")
    assert bool(said(found, "contradicts")) is wrong


@pytest.mark.parametrize(
    ("text", "efficiency"),
    [
        ("gpus,throughput\n1,100.0\n6,448.7\n", "74.8"),
        ("gpus,samples_per_s\n1,1000\n2,1615\n", "80.8"),
        ("gpus,images_per_s_per_gpu,speedup\n1,100.0,1\n4,95.0,3.8\n", "95.0"),
    ],
)
def test_throughput_of_each_worker_is_multiplied_once(text: str, efficiency: str) -> None:
    found = table(text)
    assert found.derived[-1][3] == efficiency and not said(found, "contradicts")


def test_what_rounding_explains_is_no_contradiction() -> None:
    three, five = parse_cell("3.1"), parse_cell("5.65")
    found = quotient(five, three)
    assert found is not None and found.low < 1.80 < found.high
    assert not contradicts(parse_cell("1.81"), found) and contradicts(parse_cell("1.90"), found)
    assert parse_cell("1e3").half == 500 and parse_cell("20-80").value is None


@pytest.mark.parametrize(
    ("text", "share"), [("18%", 0.18), ("10:3", 3 / 13), ("0:0", None), ("", None), ("much", None), ("1.2.3%", None)]
)
def test_communication_is_a_percentage_or_a_ratio(text: str, share: float | None) -> None:
    assert communication_share(text) == (None if share is None else pytest.approx(share))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no table"),
        ("a,b\n", "holds no table"),
        ("a,a\n1,2\n", "a name of its own"),
        ("a,b\n1\n", "row 2: 1 cells under 2 names"),
        ("a\n" + "x" * 200_000, "is no CSV table"),
    ],
)
def test_what_is_no_table_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(DistmonError, match=said):
        parse_table(text, "t.csv")


NAMES = ["workers", "gpus", "images_per_s", "task_s", "a_s", "b_s", "epoch", "epochs", "seconds", "minutes", "power_w", "speedup",
         "images_per_task", "run", "event"]  # fmt: skip
CELLS = ["", "0", "1", "2", "-3", "1e99", "1e999", "9" * 400, "5.5", "total", "time lost", "10:3", "x"]


@given(st.data())
def test_any_table_is_audited(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=8, unique=True))
    line = st.lists(st.sampled_from(CELLS), min_size=len(names), max_size=len(names)).filter(any)
    rows = data.draw(st.lists(line, min_size=1, max_size=5))
    one = parse_table("\n".join(",".join(row) for row in [names, *rows]), "t.csv")
    assert len(audit([one, one._replace(name="u.csv")])) == 2
