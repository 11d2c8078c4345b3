"""The way to a running job from another process of its user: a socket in the job's folder, which nobody else can enter.

One request a connection: a line with an action in JSON, and a line back that says what happens now, or why nothing does.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from distmon.core.errors import DistmonError
from distmon.launcher.actions import AnyAction
from distmon.launcher.rundir import CONTROL_SOCKET, RunningJob, choose_job

ANSWER_LIMIT_S = 10.0
_LARGEST_LINE = 1 << 16


class Answer(Struct, frozen=True):
    """`said` in words; `wrong` is the exit code of the error that it tells of, 0 for none."""

    said: str
    wrong: int = 0


class ControlSocket:
    """Listens for actions in a thread of its own until it is closed. `act` does one, and says what happens now."""

    def __init__(self, job_folder: Path, act: Callable[[AnyAction], str]) -> None:
        """Raises DistmonError where there can be no socket."""
        self._act = act
        self._path = job_folder / CONTROL_SOCKET
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(str(self._path))
            self._listener.listen()
        except OSError as error:
            self._listener.close()
            raise DistmonError(f"cannot listen in {job_folder}: {error.strerror or error}") from None
        threading.Thread(target=self._serve, name="distmon-control", daemon=True).start()

    def close(self) -> None:
        """No other process takes the job for a running one from now on."""
        self._path.unlink(missing_ok=True)
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # closed before
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(ANSWER_LIMIT_S)
            answer = self._answer_to(_read_line(connection))
            connection.sendall(msgspec.json.encode(answer) + b"\n")
        except OSError as error:
            logging.getLogger(__name__).debug("who asked has gone: %s", error)

    def _answer_to(self, line: bytes) -> Answer:
        try:
            return Answer(self._act(msgspec.json.decode(line, type=AnyAction)))
        except DistmonError as error:
            return Answer(str(error), error.exit_code)
        except msgspec.DecodeError as error:
            return Answer(f"the job's distmon does not know this action: {error}", 1)


def ask(job: RunningJob, action: AnyAction) -> str:
    """Have a job act, and give what it says. Raises DistmonError or UsageError, one line."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_LIMIT_S)
            connection.connect(str(job.folder / CONTROL_SOCKET))
            connection.sendall(msgspec.json.encode(action) + b"\n")
            answer = msgspec.json.decode(_read_line(connection), type=Answer)
    except TimeoutError:
        raise DistmonError(f"{job.name} does not answer; its process may be stopped") from None
    except (OSError, msgspec.DecodeError):
        raise DistmonError(f"{job.name} has ended") from None
    if answer.wrong:
        raise DistmonError(answer.said, exit_code=answer.wrong)
    return answer.said


def find_job(name: str) -> RunningJob:
    """The job of that name, or the only one. Raises UsageError or DistmonError."""
    return choose_job(
        CONTROL_SOCKET,
        name,
        unknown=f"no job {name} that distmon started runs here",
        none="no job that distmon started runs here; start one with: distmon run -np 2 -- python train.py",
    )


def _read_line(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n") and len(data) < _LARGEST_LINE:
        chunk = connection.recv(4096)
        if not chunk:
            break
        data += chunk
    return data
