"""Files of other programs as events of a session: a file per kind."""

from __future__ import annotations

from distmon.replay.importers.base import Importer
from distmon.replay.importers.tegrastats import import_tegrastats

KINDS: dict[str, Importer] = {"tegrastats": import_tegrastats}
