"""What `distmon run --samples-per-step` states holds for every step, whatever the hooks count."""

from pathlib import Path

import pytest

from distmon.probe.ring import RingReader, RingWriter, Step, monotonic_ns
from distmon.probe.steps import PHASES, StepTimer


@pytest.mark.parametrize(("stated", "expected"), [("7", 7), ("", 32), ("many", 32), ("0", 32), ("-3", 32)])
@pytest.mark.parametrize("loader_seen", [True, False])
def test_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stated: str, expected: int, loader_seen: bool) -> None:
    monkeypatch.setenv("DISTMON_SAMPLES_PER_STEP", stated)
    tmp_path.chmod(0o700)
    writer = RingWriter.create(str(tmp_path), 64, host="h")
    timer = StepTimer(writer)
    if loader_seen:
        timer.sees(*PHASES)
        timer.batch_may_train(1)
        timer.training_begins()
    for _ in range(3):
        timer.batch_wanted(1)
        timer.batch_came(32)
        timer.end_step(monotonic_ns(), timer.sink)
    (path,) = tmp_path.glob("*.ring")
    steps = [record for record in RingReader(str(path)).read() if isinstance(record, Step)]
    assert [step.samples for step in steps] == [expected] * 3
