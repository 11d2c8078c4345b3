"""Driving torchrun: it decides who runs when, and starts in each slot a supervisor of ours in place of the rank.

A supervisor calls the driver over a socket in the job's folder, says which rank it stands for, and is told what to run. So the
ranks' output, their ends and their leftovers are seen as under Horovod, and torchrun sees each rank's own exit code.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import Any, BinaryIO, Dict, List, NamedTuple, Optional

from . import remote
from .channel import EventWriter
from .job import Job, Place, WorkerCommand
from .worker import Transport

# What torchrun starts: it says which rank it is, and becomes a supervisor that reads its source from the socket. Its own standard
# error stays torchrun's.
CALL = (
    "import json,os,socket,sys\n"
    "s=socket.socket(socket.AF_UNIX);s.connect(sys.argv[1])\n"
    "names=('RANK','LOCAL_RANK','WORLD_SIZE','TORCHELASTIC_RESTART_COUNT')\n"
    "s.sendall(json.dumps({n:int(os.environ.get(n) or 0) for n in names}).encode()+b'\\n')\n"
    "os.dup2(s.fileno(),0);os.dup2(s.fileno(),1);s.close()\n"
) + remote.BOOTSTRAP
HOST = socket.gethostname()
END_LIMIT_S = 10.0


class _Slot(NamedTuple):
    hostname: str
    rank: int
    local_rank: int


class _Settings(NamedTuple):
    """What a job asks of a launcher's settings."""

    output_filename: Optional[str] = None
    num_proc: int = 1


class _Connection:
    """A supervisor at the other end of a socket, in the place of a process with pipes."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.stdin = connection.makefile("wb", buffering=0)
        self.stdout = connection.makefile("rb", buffering=0)
        self.stderr = _nothing()
        self.returncode = 0

    def kill(self) -> None:
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            # It has gone already.
            return

    def wait(self) -> int:
        self._connection.close()
        return self.returncode


def _nothing() -> BinaryIO:
    """What is at its end already: a supervisor's own complaints are torchrun's output."""
    read, write = os.pipe()
    os.close(write)
    return os.fdopen(read, "rb", buffering=0)


class TorchrunJob(Job):
    """A job whose supervisors are started by torchrun."""

    def __init__(self, spec: Dict[str, Any], writer: EventWriter) -> None:
        super().__init__(spec, writer)
        self._command: List[str] = spec["command"]
        self._np: int = spec["np"]
        self._flags: List[str] = spec["flags"]
        self._folder = os.path.dirname(spec["worker_environment"]["DISTMON_RING_DIR"])
        self._connections: Dict[int, _Connection] = {}
        self._running = 0
        self._round = threading.Lock()
        self._threads: List[threading.Thread] = []
        self._process: Optional["subprocess.Popen[bytes]"] = None

    def run(self) -> int:
        """Run torchrun to its end; its exit code. Raises RuntimeError where there is no torchrun."""
        address = os.path.join(self._folder, "torchrun.sock")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen(self._np + 8)
            threading.Thread(target=self._accept, args=(listener,), name="ranks", daemon=True).start()
            self._process = subprocess.Popen(
                self._torchrun(address),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._pass_on(self._process)
            code = self._process.wait()
        for thread in self._threads:
            thread.join(END_LIMIT_S)
        return 128 - code if code < 0 else code

    def stop(self, firm: bool) -> None:
        """End the ranks, and torchrun, which would start them again."""
        super().stop(firm)
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL if firm else signal.SIGTERM)

    def _pass_on(self, process: "subprocess.Popen[bytes]") -> None:
        """What torchrun says, but for the traceback with which it tells of a rank that failed: that is told already."""
        assert process.stdout is not None
        with process.stdout as said:
            for line in said:
                if not any(end.exit_code for end in self.exits):
                    sys.stdout.buffer.write(line)
                    sys.stdout.buffer.flush()

    def _torchrun(self, address: str) -> List[str]:
        own = [sys.executable, "-I", "-S", "-c", CALL, address]
        words = ["--standalone", "--nproc-per-node", str(self._np), *self._flags, "--no-python", *own]
        return [sys.executable, "-m", "torch.distributed.run", *words]

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        """One rank, from its call to its end."""
        stream = connection.makefile("rb", buffering=0)
        line = stream.readline(4096)
        stream.close()
        if not line:
            return
        said = json.loads(line.decode("ascii"))
        rank, size, restart = said["RANK"], said["WORLD_SIZE"], said["TORCHELASTIC_RESTART_COUNT"]
        with self._round:
            while self.generation < restart:
                self.assign([_Slot(HOST, number, number) for number in range(size)])
                self._running = 0
        place = Place(rank, HOST, said["LOCAL_RANK"], restart, local=True, static=False)
        ours = self._connections[rank] = _Connection(connection)
        try:
            self.run_worker(WorkerCommand(self._command, {}), place, _Settings(num_proc=size), [])
        finally:
            ours.kill()

    def _spec(self, command: WorkerCommand, place: Place, mark: str) -> Dict[str, Any]:
        # torchrun's variables are in the supervisor's own environment, and nowhere else.
        return dict(super()._spec(command, place, mark), inherit_environment=True, exit_as_worker=True)

    def _transport(self, place: Place, settings: Any) -> Transport:
        return self._connections.pop(place.rank)

    def _on_frame(self, frame: Dict[str, Any], place: Place, *rest: Any) -> None:
        super()._on_frame(frame, place, *rest)
        if frame["frame"] == "started":
            with self._round:
                self._running += 1
                complete = self._running == len(self._assigned)
            if complete:
                self.progress("first_step", "all ranks run: waiting for the first step, for as long as it takes")
