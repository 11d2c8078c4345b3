"""The index of a recording that has none, made by a process of its own while the recording is shown."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import weakref
from contextlib import suppress
from pathlib import Path
from typing import IO

from distmon.core.errors import DistmonError
from distmon.replay.build_index import drop, place_for_index, publish, scratch_file, write_index
from distmon.replay.index import Index
from distmon.replay.session_file import SessionFile, open_session

NICENESS = 10
"""The screen goes first."""
LOOK_S = 0.1
"""Who waits for the index looks again after so long."""


class MadeMeanwhile(Index):
    """An index that tells of the recording up to `known_to`, which moves on; once whole, it lies beside the recording."""

    def __init__(self, session: SessionFile, end: float) -> None:
        """`end` is the latest time in the recording as far as can be told without reading it."""
        self._expected_end = end
        self._target = place_for_index(session.path)
        self._out = scratch_file(self._target)
        name = self._out.name if isinstance(self._out.name, str) else ""
        self._maker = subprocess.Popen(
            [sys.executable, "-P", "-m", "distmon.replay.index_maker", str(session.path), name],
            stdin=subprocess.PIPE,  # its end tells the process that nobody reads on
            stdout=self._out,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._stop = weakref.finalize(self, _stop, self._maker, self._out)
        # Opened anew: the place in the file of a descriptor that was handed on is the same for both processes.
        super().__init__(Path(f"/proc/self/fd/{self._out.fileno()}").open("rb"))  # noqa: SIM115 closed with the index

    def catch_up(self) -> None:
        if not self._stop.alive:
            return
        ended = self._maker.poll() is not None
        self._read()
        if self.finish is not None:
            publish(self._out, self._target)
        elif ended:
            self.trouble = f"its index could not be made: {_last_line(self._maker.stderr)}"
        else:
            return
        self._stop()

    def wait(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._maker.wait(LOOK_S)
        self.catch_up()
        if self.trouble:
            raise DistmonError(self.trouble)

    @property
    def end(self) -> float:
        return self.finish.end if self.finish else max(self._expected_end, self.known_to)

    @property
    def known_to(self) -> float:
        return self.finish.end if self.finish else self.last_known_second.at

    def close(self) -> None:
        self._stop()
        super().close()


def _stop(maker: subprocess.Popen[bytes], out: IO[bytes]) -> None:
    """Ends the process, and takes away what was not given its place."""
    maker.kill()
    maker.communicate()
    drop(out)
    out.close()


def _last_line(stream: IO[bytes] | None) -> str:
    said = stream.read().decode(errors="replace").split("\n") if stream is not None else []
    return next((line for line in reversed(said) if line.strip()), "its process was ended")


def main(path: str, scratch: str) -> None:
    """Writes the index of the recording to standard output, as long as standard input is open; `scratch` is the output's name."""
    os.nice(NICENESS)

    def go_on(share: float) -> None:
        if select.select([sys.stdin], [], [], 0)[0]:
            if scratch:
                Path(scratch).unlink(missing_ok=True)
            sys.exit()

    try:
        with os.fdopen(sys.stdout.fileno(), "wb", closefd=False) as out:
            write_index(open_session(Path(path)), out, go_on, shown=True)
    except DistmonError as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(error.strerror or str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
