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
from distmon.core.audit.names import plain_name
from distmon.core.audit.table import parse_cell, parse_table
from distmon.core.audit.values import communication_share
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
    assert said(found, "caution")[-1] == "gpu_pct: 20-80 (row 1): not read as one number, and nothing is computed from it"


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
    assert communication_share(parse_cell(text)) == (None if share is None else pytest.approx(share))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no table"),
        ("a,b\n", "holds no table"),
        ("a,a\n1,2\n", "a name of its own"),
        ("a,b\n1\n", "row 1: 1 cells under 2 names"),
        ("a\n" + "x" * 200_000, "is no CSV table"),
        ("1,100\n2,190\n", "1 in the first line is a number and no column name"),
        ("gpus,img/s\n1,1,024.5\n", 'row 1: 3 cells under 2 names; a number with a comma in it needs quotes'),
        ("gpus\n1;2,5\n", "row 1: 2 cells under 1 names; cells are told apart by commas, semicolons or tabs"),
    ],
)
def test_what_is_no_table_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(DistmonError, match=said):
        parse_table(text, "t.csv")


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("images/s", "images_per_s"),
        ("img/s", "images_per_s"),
        ("Images/sec", "images_per_s"),
        ("samples/s", "samples_per_s"),
        ("images per second", "images_per_s"),
        ("Throughput (img/s)", "images_per_s"),
        ("Throughput per GPU (img/s)", "images_per_s_per_gpu"),
        ("images/GPU/s", "images_per_s_per_gpu"),
        ("# GPUs", "gpus"),
        ("Number of GPUs", "gpus"),
        ("GPU count", "gpus"),
        ("processes", "processes"),
        ("n_workers", "workers"),
        ("Speedup (x)", "speedup"),
        ("Speed-up", "speedup"),
        ("Time (s)", "time_s"),
        ("Training time [min]", "training_time_minutes"),
        ("Efficiency (%)", "efficiency_percent"),
        ("Seconds", "seconds"),
        ("Allreduce (s)", "Allreduce_s"),
        ("Fixed_s", "Fixed_s"),
        ("GPU (%)", "GPU (%)"),
    ],
)
def test_headers_are_understood_as_they_are_published(header: str, name: str) -> None:
    assert plain_name(header) == name


def test_of_two_columns_that_mean_the_same_the_first_is_read() -> None:
    found = parse_table("Images/sec,img/s,GPUs\n1,2,3\n", "t.csv")
    assert found.columns == ["images_per_s", "img/s", "gpus"] and found.written["images_per_s"] == "Images/sec"
    assert parse_table("Images/sec,images_per_s\n1,2\n", "t.csv").columns == ["Images/sec", "images_per_s"]


@pytest.mark.parametrize(
    ("text", "value", "half"),
    [("1.0x", 1, 0.05), ("83%", 83, 0.5), ("83 %", 83, 0.5), ("1,024.5", 1024.5, 0.05), ("1,024", 1024, 0.5), ("1,02", None, 0)],
)
def test_numbers_are_read_as_they_are_published(text: str, value: float | None, half: float) -> None:
    cell = parse_cell(text)
    assert cell.text == text and cell.value == value and cell.half == pytest.approx(half)


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("gpus\timg/s\n1\t1,024.5\n2\t2,000\n", [1024.5, 2000]),
        ("gpus;img/s\n1;1024.5\n2;2,000.5\n", [1024.5, 2000.5]),
        ("gpus;img/s\n1;100,5\n2;1.000,25\n", [100.5, 1000.25]),
        ('gpus,img/s\n1,"1,024"\n2,"2,000"\n', [1024, 2000]),
        ('gpus,"Throughput; all"\n1,5\n2,6\n', [5, 6]),
    ],
)
def test_delimiters_and_decimal_commas_are_told_from_the_table(text: str, rates: list[float]) -> None:
    found = parse_table(text, "t.csv")
    assert [row[found.columns[1]].value for row in found.rows] == rates and not found.notes


def test_an_unclear_comma_is_told() -> None:
    found = table("gpus;img/s\n1;1,024\n2;2,001\n")
    assert "1,024 is read as 1.024, with a decimal comma" in said(found, "caution")[0]


def test_a_speedup_by_time_is_checked_and_another_number_of_epochs_told() -> None:
    found = table("gpus,epochs,seconds,speedup\n1,10,3600,1\n2,5,1800,2\n4,10,900,3.5\n")
    assert said(found, "contradicts") == ["gpus 4: speedup computes to 4.000, printed 3.5"]
    assert said(found, "agrees") == ["gpus 1: speedup 1"]
    (caution,) = said(found, "caution")
    assert caution.startswith("gpus 2: 5 epochs where gpus 1 trained 10") and caution.endswith("by time per epoch it is 1.000")


def test_each_model_has_its_own_speedup_by_time() -> None:
    found = table("model,gpus,Time (s),Speedup\na,1,100,1\na,2,50,2\nb,1,300,1\nb,2,200,1.5\n")
    assert len(said(found, "agrees")) == 4 and not said(found, "contradicts")


def test_a_speedup_of_constant_work_for_each_worker_is_told_as_one() -> None:
    found = table("gpus,Epoch time (s),speedup\n1,100,1\n4,110,3.64\n")
    assert not said(found, "contradicts") and "only if each worker had the same work" in said(found, "caution")[0]


def test_times_alone_give_no_speedup() -> None:
    found = table("gpus,time\n1,100\n4,30\n")
    assert not found.derived and "whether all rows did the same work is not told" in said(found, "caution")[0]


def test_an_efficiency_is_held_against_the_speedup_beside_it() -> None:
    found = table("gpus,speedup,efficiency\n1,1,100%\n4,3.33,70%\n8,9.7,121%\n")
    assert said(found, "contradicts") == ["gpus 4: efficiency computes to 83.2, printed 70%"]
    assert len(said(found, "agrees")) == 2
    assert [text for text in said(found, "caution") if "gpus 8: efficiency 121.2 %, more than linear" in text]
    over_eight = table("gpus,speedup,efficiency\n8,1,1\n16,1.9,0.95\n")
    assert len(said(over_eight, "agrees")) == 2


def test_speedups_by_speed_and_by_time_are_told_apart() -> None:
    found = table("gpus,speed_per_gpu,speedup_speed,speedup_time\n1,100,1,1\n4,95,3.8,1.5\n8,94,6.5,6.4\n")
    assert said(found, "contradicts") == ["gpus 8: speedup_speed computes to 7.520, printed 6.5"]
    assert said(found, "caution") == [
        "gpus 4: speedup 3.8 by speed and 1.5 by time: at least 61 % of its time, as start and initialisation, "
        "is no part of the speed"
    ]
    alone = table("gpus,speedup_speed,speedup_time,efficiency\n4,3.8,1.5,0.375\n")
    assert "efficiency 0.375 is right only if it is by speedup_time" in "\n".join(said(alone, "caution"))


def test_impossible_values_are_told_and_not_computed_with() -> None:
    found = table("workers,images/s,communication\n0,50,0%\n1,100,0%\n2,-5,10%\n4,419.6,140%\n")
    assert said(found, "contradicts") == [
        "row 3, images/s: -5: this cannot be below 0; nothing is computed from it",
        "row 4, communication: 140%: a share of the time lies between 0 and 100 %",
    ]
    assert [row[1] for row in found.derived] == ["1", "4"]
    cautions = "\n".join(said(found, "caution"))
    assert "row 1, workers: 0: nothing" in cautions and "104.9 %, more than linear" in cautions and "-40" not in cautions


def test_phases_of_a_task_without_time_and_one_longer_than_its_task_are_told() -> None:
    found = table("workers,task_s,a_s,b_s\n1,0,3,4\n2,5,7,\n4,10,4,5\n")
    assert said(found, "contradicts") == ["workers 2: a_s = 7.00 s, more than the 5 s of the task, of which it should be a part"]
    assert "row 1, task_s: 0: nothing can be computed from it" in said(found, "caution")


def test_no_work_gives_no_throughput_to_hold_against() -> None:
    found = table("workers,task_s,images_per_task,images_per_s\n1,5,0,10\n")
    assert "row 1, images_per_task: 0: nothing can be computed from it" in said(found, "caution")


def test_an_epoch_that_stands_there_twice_is_told_and_each_difference_counts() -> None:
    found = table("epoch,a_s,b_s,difference_s\n0,10.0,12.0,2.0\n1,10.0,13.0,3.0\n1,10.0,13.0,4.0\n2,10.0,11.0,1.0\n")
    assert said(found, "contradicts") == ["epoch 1: difference computes to 3.00, printed 4.0"]
    assert "epoch 1: stands in rows 2 and 3: sums and comparisons hold row 3 alone" in said(found, "caution")
    assert [finding.checked for finding in found.findings if finding.kind == "agrees"] == [3]


def test_events_without_their_epochs_ask_for_them_and_strange_runs_are_told() -> None:
    events = "run,event,seconds\na,restart,0\nc,restart,5\n"
    assert said(table(events), "caution") == [
        "all rows: events between the epochs of runs: name the table of these too (columns epoch and RUN_s of each run)"
    ]
    found = audit([parse_table("epoch,a_s\n0,1\n1,2\n", "e.csv"), parse_table(events, "v.csv")])[1]
    assert said(found, "caution") == ["c: e.csv has no column NAME_s of this run: its events are left out"]


def test_rows_of_other_batch_sizes_are_groups_of_their_own() -> None:
    found = table("gpus,Batch size,img/s,speedup\n1,32,100,1\n1,64,150,1\n2,32,180,1.8\n2,64,290,1.93\n")
    assert len(said(found, "agrees")) == 4 and found.derived[0][0] == "Batch size 32"
    grown = table("gpus,batch_size,img/s,speedup\n1,32,100,1\n2,64,190,1.9\n")
    assert len(said(grown, "agrees")) == 2


def test_speedups_over_a_row_that_is_absent_are_held_against_the_first_that_is_there() -> None:
    found = table("gpus,images/s,speedup,efficiency\n8,800.0,7.90,98.8%\n16,1580.0,15.60,97.5%\n32,2400.0,31.0,\n")
    assert said(found, "contradicts") == ["gpus 32: speedup computes to 23.700, printed 31.0"]
    assert len(said(found, "agrees")) == 4 and [row[3] for row in found.derived] == ["98.8", "97.5", "74.1"]
    assert said(found, "caution") == ["gpus 8: its speedup of 7.90 is over a row that is not here, and taken as printed"]


def test_a_speedup_in_percent_is_of_the_ideal_or_of_one_worker() -> None:
    found = table("gpus,images/s,Speedup (%)\n1,100,100\n4,332,83\n8,640,640\n16,1300,99\n")
    assert len(said(found, "agrees")) == 2
    right = "Speedup (%) 640 is right only if it is in percent of one worker"
    assert said(found, "caution") == [f"gpus 8: {right}; else it computes to 80.0"]
    assert said(found, "contradicts") == ["gpus 16: Speedup (%) computes to 81.2, printed 99"]


def test_a_rate_that_is_read_otherwise_is_a_caution() -> None:
    found = table("gpus,throughput,speedup\n1,100,1\n4,95,3.8\n")
    text = "speedup 3.8 is right only if throughput is that of each worker; else it computes to 0.950"
    assert said(found, "caution")[0] == f"gpus 4: {text}"
    assert not said(found, "contradicts")


def test_a_throughput_of_all_is_held_against_that_of_each() -> None:
    found = table("workers,images_per_s,images_per_s_per_gpu\n1,100,100\n2,190,95\n4,360,85\n")
    assert said(found, "contradicts") == ["workers 4: images_per_s_per_gpu computes to 90.00, printed 85"]
    assert len(said(found, "agrees")) == 2
    of_boards = table("nodes,gpus,Throughput,images_per_s_per_gpu\n1,4,400,100\n2,8,760,95\n")
    assert not said(of_boards, "contradicts") and len(said(of_boards, "agrees")) == 2
    of_each = table("gpus,throughput,throughput_per_gpu\n1,100,100\n4,95,95\n")
    assert "throughput_per_gpu 95 is right only if throughput is that of each too" in said(of_each, "caution")[0]
    other_unit = table("gpus,images_per_s,tokens_per_s_per_gpu\n1,100,9000\n2,190,8000\n")
    assert not said(other_unit, "contradicts")


def test_epochs_without_a_time_are_told_and_part_of_no_sum() -> None:
    found = table("epoch,a_s,b_s,difference_s\n0,100,100,0\n1,50,50,0\n1,50,55,5\n3,50,50,0\n4,50,,\n5,-3,50,53\n")
    assert said(found, "derived") == ["a: 4 epochs add up to 250.00 s", "b: 4 epochs add up to 255.00 s"]
    assert said(found, "contradicts") == ["row 6, a_s: -3: this cannot be below 0; nothing is computed from it"]
    assert said(found, "caution")[1:] == [
        "all rows: no row between epochs 1 and 3: sums are without it",
        "a: epoch 5 has no usable time: sums and comparisons are without it",
        "b: epoch 4 has no usable time: sums and comparisons are without it",
    ]
    every_fifth = table("epoch,a_s\n0,100\n5,50\n10,50\n15,50\n")
    assert not said(every_fifth, "caution")


def test_a_blank_last_epoch_makes_no_warmup_and_differences_of_the_others_are_checked() -> None:
    found = table("epoch,a_s,b_s,difference_printed_s\n0,100,101,1\n1,50,52,-2\n2,50,,\n")
    assert said(found, "caution") == ["b: epoch 2 has no usable time: sums and comparisons are without it"]
    assert said(found, "contradicts") == ["epoch 1: difference computes to 2.00, printed -2"]
    assert said(found, "derived") == ["a: 3 epochs add up to 200.00 s"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ([15], "epoch 2 took 15 s"),
        ([15.1, 14.9], "epochs 2 to 3 took 15 s"),
        ([15, 18], "epochs 2 to 3 took 15 to 18 s"),
    ],
)
def test_slower_epochs_are_told_with_their_times(seconds: list[float], words: str) -> None:
    rows = [10, 10, *seconds, 10, 10, 10]
    found = table("epoch,a_s\n" + "".join(f"{epoch},{s}\n" for epoch, s in enumerate(rows)))
    assert said(found, "caution") == [f"a: {words}, usual are 10 s: fewer workers, or slower ones"]


def test_of_two_rows_of_the_smallest_size_either_may_be_the_base() -> None:
    found = table("workers,images_per_s,speedup\n1,100,1\n1,120,1.00\n2,150,1.25\n")
    assert not said(found, "contradicts") and "more than linear" not in "\n".join(said(found, "caution"))
    assert said(found, "caution") == [
        "workers 1: 2 rows that nothing tells apart: speedups are over images_per_s 100, and not 120",
        "workers 1: speedup 1.00 is right only if it is over images_per_s 120; else it computes to 1.200",
        "workers 2: speedup 1.25 is right only if it is over images_per_s 120; else it computes to 1.500",
    ]
    by_time = table("workers,seconds,speedup\n1,100.0,1\n1,80.0,1\n2,50.0,1.6\n")
    assert not said(by_time, "contradicts")
    assert "speedups are over seconds 100.0, and not 80.0" in said(by_time, "caution")[0]


def test_a_base_of_several_workers_is_told() -> None:
    found = table("model,workers,images_per_s,speedup\nA,1,100,1\nA,2,190,1.9\nB,2,50,1\nB,4,100,2.0\n")
    told = "no row has fewer workers, so that it is the base, 100 % by definition: how it compares with 1 is not told"
    assert said(found, "caution") == [f"B, workers 2: {told}"]
    as_printed = table("gpus,speedup\n8,1\n16,1.9\n")
    assert [text for text in said(as_printed, "caution") if text.startswith("gpus 8: no row has fewer gpus")]


def test_cells_of_measurements_that_are_no_number_are_named_whatever_they_hold() -> None:
    found = table("workers,time,images_per_s\n1,1:00:00,100\n2,33:20,abc\n4,16m40s,n/a\n8,,-\n")
    assert said(found, "caution") == [
        "time: 1:00:00 (row 1), 33:20 (row 2), 16m40s (row 3): not read as one number, and nothing is computed from it",
        "images_per_s: abc (row 2): not read as one number, and nothing is computed from it",
    ]


def test_joules_are_held_against_watts_and_seconds() -> None:
    found = table("gpus,power_w,seconds,energy_j,images_per_s\n1,100,10.0,1000,5\n2,210,10.0,3000,9\n4,300,10.0,12000,19\n")
    assert said(found, "contradicts") == ["row 2: energy_j (power_w x seconds) computes to 2100, printed 3000"]
    each = "row 3: energy_j (power_w x seconds) 12000 is right only if power_w is that of each of gpus"
    assert said(found, "caution")[0].startswith(each)


def test_work_by_time_is_held_against_the_throughput() -> None:
    found = table("ranks,images_per_s,seconds,images\n1,100,10.0,1000\n2,190,10.5,1000\n4,300,10.0,1000\n8,50,10.0,1000\n")
    assert "row 1: images_per_s 100: images / seconds = 100.0" in said(found, "agrees")
    assert [text for text in said(found, "caution") if "images / seconds" in text] == [
        "row 2: images_per_s 190 is right only if images is that of each of ranks; else images / seconds = 95.2",
        "row 3: images / seconds = 100.0, and images_per_s 300: 67 % of the time is no part of the speed",
        "row 4: images / seconds = 100.0, and images_per_s 50: they are not of the same time or work",
    ]
    assert not said(table("ranks,images_per_s,step_s,images\n1,100,0.1,50000\n"), "caution")


def test_columns_of_numbers_that_nothing_is_asked_of_are_named() -> None:
    assert table("gpus,images_per_s,batch size,loss,host\n1,100,32,0.5,a\n2,190,32,0.4,b\n").left_out == ["loss"]
    assert table("epoch,a_s,b_s,a_loss\n0,1,1,3\n").left_out == []


NAMES = ["workers", "gpus", "images_per_s", "time", "speedup_time", "speedup_speed", "communication (%)", "speedup (%)", "batch",
         "efficiency", "task_s", "a_s", "b_s", "epoch", "epochs", "seconds", "minutes", "power_w", "speedup",
         "images_per_task", "run", "event", "energy_j", "images", "images_per_s_per_gpu"]  # fmt: skip
CELLS = ["", "0", "1", "2", "-3", "1e99", "1e999", "9" * 400, "5.5", "total", "time lost", "10:3", "x", "0.0", "140%", "1.5x"]


@given(st.data())
def test_any_table_is_audited(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=8, unique=True))
    line = st.lists(st.sampled_from(CELLS), min_size=len(names), max_size=len(names)).filter(any)
    rows = data.draw(st.lists(line, min_size=1, max_size=5))
    one = parse_table("\n".join(",".join(row) for row in [names, *rows]), "t.csv")
    assert len(audit([one, one._replace(name="u.csv")])) == 2
