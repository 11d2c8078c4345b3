"""Numbers keep their width and their meaning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from distmon.core.printable import clean
from distmon.tui import format as fmt


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"), (0, "0"), (0.0421, "0.042"), (0.99951, "1.00"), (1.234, "1.23"), (9.996, "10.0"), (12.34, "12.3"),
        (99.96, "100"), (492.4, "492"), (1234, "1,234"), (9999.6, "10.0k"), (15_730, "15.7k"), (999_600, "1.00M"),
        (2.5e9, "2.50G"), (-15.0, "-15.0"),
    ],
)  # fmt: skip
def test_compact(value: float | None, shown: str) -> None:
    assert fmt.compact(value) == shown


@pytest.mark.parametrize(
    ("name", "shown"), [("gpu-node-0012", "…u-node-0012"), ("gpu-01", "gpu-01      "), ("漢字漢字漢字漢0", "…漢字漢字漢0")]
)
def test_what_tells_names_apart_is_their_end(name: str, shown: str) -> None:
    assert fmt.fit_end(name, 12) == shown and cell_len(shown) == 12
    assert fmt.fit_end(name, 1) == "…" and fmt.fit_end(name, 0) == ""


@given(st.floats(min_value=0, max_value=999e9))
def test_compact_is_never_wider_than_its_column(value: float) -> None:
    assert len(fmt.compact(value)) <= 5


@given(st.floats(min_value=0, max_value=999e9))
def test_compact_keeps_three_digits(value: float) -> None:
    units = {"k": 1e3, "M": 1e6, "G": 1e9}
    text = fmt.compact(value).replace(",", "")
    read = float(text.rstrip("kMG")) * units.get(text[-1], 1)
    assert read == pytest.approx(value, rel=0.005, abs=0.0006)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "–"), (0, "0:00"), (42.9, "0:42"), (723, "12:03"), (3723, "1:02:03"), (273_900, "3d 04:05")],
)
def test_duration(seconds: float | None, shown: str) -> None:
    assert fmt.duration(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(None, "–"), (0.00085, "0.85"), (0.0123, "12.3"), (0.5, "500"), (1.5, "1,500")]
)
def test_milliseconds(seconds: float | None, shown: str) -> None:
    assert fmt.milliseconds(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"), [(None, "–"), (512, "512B"), (4300, "4.2K"), (13 << 20, "13.0M"), (312 << 20, "312M")]
)
def test_size(count: float | None, shown: str) -> None:
    assert fmt.size(count) == shown


def test_a_missing_value_is_never_a_zero() -> None:
    shown = [
        f(None).strip()
        for f in (fmt.compact, fmt.milliseconds, fmt.duration, fmt.span, fmt.age, fmt.size, fmt.percent, fmt.watts)
    ]
    assert set(shown) == {fmt.MISSING}


def test_percent_has_no_negative_zero() -> None:
    assert fmt.percent(-0.3) == "  0%"
    assert fmt.milliseconds(-1e-7) == "0.00"


@given(st.text(max_size=60).map(clean), st.integers(0, 40), st.sampled_from(["left", "right", "centre"]))
def test_fit_fills_exactly(text: str, width: int, align: str) -> None:
    assert cell_len(fmt.fit(text, width, align)) == width  # type: ignore[arg-type]
