"""What keeps coming late is said once; what is being caught up with is not."""

from __future__ import annotations

from distmon.tui.lateness import Lateness


def test_a_delay_that_grows_is_said_once_with_its_node() -> None:
    lateness = Lateness()
    said = [lateness.look(now, {"a": 0.1, "b": 6.0 + now}) for now in range(60)]
    told = [(now, text) for now, text in enumerate(said) if text]
    assert [now for now, _ in told] == [15]
    assert "agent of b tells comes 21 s late" in told[0][1] and "--summaries" in told[0][1]


def test_what_comes_rarely_is_late_all_the_same() -> None:
    """A message may take longer than a look; while none comes there is nothing new to say."""
    lateness = Lateness()
    said = [lateness.look(now, {"a": 0.6 * now} if now % 7 == 0 else {}) for now in range(60)]
    assert [now for now, text in enumerate(said) if text] == [35]


def test_catching_up_is_not_late() -> None:
    lateness = Lateness()
    assert not any(lateness.look(now, {"a": 300.0 - now}) for now in range(290))


def test_one_late_second_is_forgotten() -> None:
    lateness = Lateness()
    assert not any(lateness.look(now, {"a": 20.0 if now % 3 == 0 else 0.0}) for now in range(100))
