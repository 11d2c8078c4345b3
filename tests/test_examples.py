"""The examples, as a user runs them without distmon: on two ranks, and on the data that they say they take."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
RECORD_BYTES = 3073
# Loading TensorFlow takes seconds of CPU time, and minutes on a machine that is busy otherwise.
pytestmark = pytest.mark.timeout(300)


def run(command: Sequence[str | Path]) -> "subprocess.CompletedProcess[str]":
    """Run to the end, with TensorFlow's banner left out."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    words = [str(word) for word in command]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=280, check=False)


def test_torch_digits_learns_on_two_ranks(tmp_path: Path) -> None:
    options = ["--epochs", "8", "--checkpoint-dir", str(tmp_path)]
    horovodrun = Path(sys.executable).parent / "horovodrun"
    answer = run([horovodrun, "-np", "2", sys.executable, EXAMPLES / "torch_digits.py", *options])
    assert answer.returncode == 0, answer.stderr
    accuracies = [float(value) for value in re.findall(r"accuracy ([\d.]+)", answer.stdout)]
    assert len(accuracies) == 8
    assert accuracies[-1] > 0.8
    assert (tmp_path / "digits.pt").stat().st_size > 0


def test_keras_models_trains_on_cifar_10_as_it_is_published(tmp_path: Path) -> None:
    records = b"".join(bytes([label]) + bytes(RECORD_BYTES - 1) for label in range(10))
    (tmp_path / "data_batch_1.bin").write_bytes(records)
    options = ["--model", "VGG19", "--data", str(tmp_path), "--steps", "1", "--batch-size", "2"]
    answer = run([sys.executable, EXAMPLES / "keras_models.py", *options])
    assert answer.returncode == 0, answer.stderr
    assert "1/1 - " in answer.stdout


def test_keras_models_says_what_is_wrong_with_the_data(tmp_path: Path) -> None:
    answer = run([sys.executable, EXAMPLES / "keras_models.py", "--data", tmp_path])
    assert answer.returncode == 1
    assert "has no data_batch_*.bin: unpack the binary version of CIFAR-10 there" in answer.stderr


@pytest.mark.parametrize("name", ["torch_elastic.py", pytest.param("keras_elastic.py", marks=pytest.mark.long)])
def test_the_elastic_examples_end_by_themselves(name: str) -> None:
    horovodrun = Path(sys.executable).parent / "horovodrun"
    elastic = ["--min-np", "1", "--host-discovery-script", "echo localhost:1", "--network-interface", "lo"]
    answer = run([horovodrun, "-np", "1", *elastic, sys.executable, EXAMPLES / name, "--seconds", "1", "--width", "4"])
    assert answer.returncode == 0, answer.stderr
    assert re.search(r"[Ee]poch 1\b", answer.stdout)
