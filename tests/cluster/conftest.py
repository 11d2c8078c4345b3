"""A cluster for a module's tests; its hosts are up for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.requirements import why_not


@pytest.fixture(scope="session", autouse=True)
def _able() -> None:
    if reason := why_not():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Hosts node1, node2 and node3."""
    with Cluster() as made:
        made.up("node1", "node2", "node3")
        yield made
