"""The clocks in a real TensorFlow graph, of both kinds: what they note, and that the graph computes the same."""

import itertools
import json
import subprocess
import sys

import pytest

from .conftest import JOBS, environment


@pytest.mark.parametrize(("kind", "made"), [("queue", "QueueClocks"), ("kernels", "KernelClocks")])
def test_they_note_batches_and_reductions_in_order(tensorflow_available: None, kind: str, made: str) -> None:
    command = [sys.executable, str(JOBS / "clocks_job.py"), kind]
    done = subprocess.run(command, env=environment(None), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    noted = json.loads(done.stdout)
    batches, reductions = noted["rows"]
    assert noted["kind"] == made
    assert noted["results"] == [64, 64, 40, 6, 2]
    assert [samples for _, samples in batches] == [8, 8, 5, 3, 0, 4]
    assert len(reductions) == 5
    edges = [time for (there, _), reduction in zip(batches, reductions, strict=False) for time in (there, *reduction)]
    edges = [noted["begun"], *edges, batches[-1][0], noted["ended"]]
    # Wall clock times in 64 bits are a quarter of a microsecond apart.
    assert all(later - earlier > -1e-6 for earlier, later in itertools.pairwise(edges))
    assert all(reduced - ready >= 0.02 for ready, reduced in reductions)
