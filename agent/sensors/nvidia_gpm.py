"""How busy the parts of an NVIDIA GPU are, or of a MIG instance on it: NVML's GPU performance monitoring (GPM), Hopper and later.

It counts in the GPU, so two samples and what the driver makes of the time between them; it excludes no profiler.
"""

from __future__ import annotations

from typing import Any

from distmon.agent.sensors.nvidia_calls import Handle, Nvml

_METRICS = (
    ("sm_active_percent", "NVML_GPM_METRIC_SM_UTIL"),
    ("sm_occupancy_percent", "NVML_GPM_METRIC_SM_OCCUPANCY"),
    ("tensor_active_percent", "NVML_GPM_METRIC_ANY_TENSOR_UTIL"),
    ("dram_active_percent", "NVML_GPM_METRIC_DRAM_BW_UTIL"),
    ("utilization_percent", "NVML_GPM_METRIC_GRAPHICS_UTIL"),
)
"""(field, NVML's metric). The last one, in which share of time any kernel ran, NVML tells of a whole GPU in a quicker way."""
FIELDS = tuple(name for name, _ in _METRICS[:-1])
NOT_ON_THIS_GPU = "this GPU does not report it (Hopper and later do)"
NOT_YET = "its counters have not been read twice"


def has_gpm(nvml: Nvml, handle: Handle) -> bool:
    """Raises NVMLError where the driver does not know of it."""
    return bool(nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)


class Gpm:
    """Two samples in turns. `instance` is the number of a MIG instance on the GPU `handle`, None for all of it."""

    def __init__(self, nvml: Nvml, handle: Handle, instance: int | None = None) -> None:
        self._nvml = nvml
        self._handle = handle
        self._instance = instance
        self._before: Any = None
        self._spare: Any = None

    def read(self) -> dict[str, float]:
        """Percentages since the last call by field; empty the first time. Raises NVMLError."""
        now, self._spare = self._spare or self._nvml.nvmlGpmSampleAlloc(), None
        if self._instance is None:
            self._nvml.nvmlGpmSampleGet(self._handle, now)
        else:
            self._nvml.nvmlGpmMigSampleGet(self._handle, self._instance, now)
        before, self._before = self._before, now
        if before is None:
            return {}
        self._spare = before
        return self._between(before, now)

    def close(self) -> None:
        """Gives the samples back to the driver."""
        for sample in (self._before, self._spare):
            if sample is not None:
                self._nvml.nvmlGpmSampleFree(sample)
        self._before = self._spare = None

    def _between(self, before: Any, now: Any) -> dict[str, float]:
        nvml = self._nvml
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(_METRICS)
        asked.sample1, asked.sample2 = before, now
        for place, (_, metric) in enumerate(_METRICS):
            asked.metrics[place].metricId = getattr(nvml, metric)
        answers = nvml.nvmlGpmMetricsGet(asked).metrics
        told = [(name, answers[place]) for place, (name, _) in enumerate(_METRICS)]
        return {name: float(answer.value) for name, answer in told if answer.nvmlReturn == nvml.NVML_SUCCESS}
