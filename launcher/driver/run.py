"""One job from spec to end: run horovod.runner in the main thread, stop when asked, say how it ended."""

import argparse
import importlib
import importlib.util
import json
import logging
import os
import re
import signal
import sys
import threading
import time
import traceback
from types import FrameType
from typing import Any, Dict, List, NoReturn, Optional

from . import built, channel, hooks
from .failure import as_record, first_failure
from .job import Job
from .processes import MARK, raise_open_files_limit
from .torchrun import TorchrunJob

POLITE_LIMIT_S = 8.0
"""A polite stop that has not ended the job by then becomes a firm one: a hanging discovery script can hold Horovod for ever."""
FIRM_LIMIT_S = 1.0
HOROVOD_LIMIT_S = 0.5
FLUSH_LIMIT_S = 5.0


class BadFlags(Exception):
    """Horovod's own parser refuses the flags."""


class Driver:
    def __init__(self, spec: Dict[str, Any], writer: channel.EventWriter) -> None:
        self.spec = spec
        self.writer = writer
        self.job = TorchrunJob(spec, writer) if spec["backend"] == "torchrun" else Job(spec, writer)
        self.shutdown = hooks.Shutdown()
        self.unhooked = False
        self.stop_signal: Optional[int] = None
        self._finishing = threading.Lock()

    # --- the job ---

    def run(self) -> NoReturn:
        """Run the job to its end and exit this process with its code."""
        error = ""
        code = 0
        try:
            if isinstance(self.job, TorchrunJob):
                code = self._run_torchrun(self.job)
            else:
                self._launch()
        except KeyboardInterrupt:
            code = 130
        except BadFlags as refusal:
            error, code = str(refusal), 2
        except (Exception, SystemExit) as failure:
            error = _one_line(failure)
            told = re.search(r"Exit code: (\d+)", error) if self.unhooked else None
            code = int(told.group(1)) if told else 1
            if self.spec.get("debug"):
                traceback.print_exc()
        self.finish(code, error)

    def _launch(self) -> None:
        self.job.progress("starting_driver", "loading Horovod's launcher")
        launch = _load_horovod()
        args = _parse(launch, self.spec["flags"])
        args.command = self.spec["command"]
        self.job.limits = _limits(args)
        if args.log_level:
            logging.addLevelName(logging.NOTSET, "TRACE")
            logging.basicConfig(level=logging.getLevelName(args.log_level))
        built.remember_answers(launch, self._tell_slow_look)
        for_elastic = bool(args.host_discovery_script or args.min_num_proc)
        unseen = hooks.lacking(for_elastic=for_elastic)
        if unseen:
            self._run_unhooked(f"this Horovod has no {unseen[0]}")
        elif args.use_mpi or args.use_jsrun:
            self._run_unhooked("MPI starts the ranks")
        elif hooks.starts_by_kubexec():
            self._run_unhooked("Kubeflow starts the ranks")
        else:
            hooks.install(self.job, self.shutdown, for_elastic=for_elastic)
        launch._run(args)

    def _run_torchrun(self, job: TorchrunJob) -> int:
        if importlib.util.find_spec("torch") is None:
            raise RuntimeError(f"there is no torch in {sys.executable}: install it there, or name the training's Python")
        job.progress("starting_driver", "loading torchrun")
        return job.run()

    def _tell_slow_look(self) -> None:
        detail = "Horovod loads a framework to see how it was built; asked once per build"
        self.job.progress("starting_driver", detail)

    def _run_unhooked(self, why: str) -> None:
        """Let Horovod start the ranks itself; the mark lets those on this host be found at the end."""
        self.unhooked = True
        os.environ.update(self.spec["worker_environment"])
        os.environ[MARK] = self.job.id + "/0/"
        unseen = "starts, exits and output of single ranks, and hosts that come and go, are not seen"
        text = f"{why}: horovodrun runs as it is, and {unseen}"
        self.writer.emit("notice", severity="warning", text=text)
        # From here on ranks may run, which nothing else tells.
        self.job.progress("first_step", "")

    def obey(self, word: str, numbers: List[int]) -> None:
        """An order of distmon's (channel.py)."""
        if word == "signal":
            self.job.signal(*numbers)
        else:
            self.order(word == "kill", numbers[0])

    # --- ending ---

    def order(self, firm: bool, signum: int) -> None:
        """What distmon asks for, or its death: stop."""
        if self.stop_signal is None:
            self.stop_signal = signum
        self.job.stop(firm)
        self._watch(FIRM_LIMIT_S if firm else POLITE_LIMIT_S, firm)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def on_signal(self, signum: int, frame: Optional[FrameType]) -> None:
        """In the main thread: leave whatever Horovod does there."""
        if self.stop_signal is None:
            self.stop_signal = signum
            threading.Thread(target=self.order, args=(False, signum), daemon=True).start()
        if self.shutdown.event is not None:
            self.shutdown.event.set()
        elif not self._finishing.locked():
            raise KeyboardInterrupt

    def _watch(self, limit_s: float, firm: bool) -> None:
        def end() -> None:
            if self._emptied(limit_s) or firm:
                # Horovod gets a moment to return by itself, and longer where it has the workers to end.
                time.sleep(POLITE_LIMIT_S if self.unhooked and not firm else HOROVOD_LIMIT_S)
                self.finish(1, "")
            else:
                self.order(True, signal.SIGTERM)

        threading.Thread(target=end, daemon=True).start()

    def _emptied(self, limit_s: float) -> bool:
        """Wait for all workers to have ended."""
        deadline = time.monotonic() + limit_s
        while self.job.running() and time.monotonic() < deadline:
            time.sleep(0.05)
        return not self.job.running()

    def finish(self, code: int, error: str) -> NoReturn:
        """Report the end and leave. Only the first caller's report counts; the others wait for its exit."""
        self._finishing.acquire()
        if self.stop_signal is None and self.job.running():
            # Horovod gave up, and left workers behind.
            self.job.stop(False)
            self._emptied(POLITE_LIMIT_S)
        self.job.sweep()
        # Where Horovod calls the job a success, what died on the way was made up for.
        failure = first_failure(self.job.exits, self.job.generation) if code or self.stop_signal else None
        if self.stop_signal is not None:
            code, reason, error = 128 + self.stop_signal, "stopped", ""
        elif failure is not None:
            code, reason, error = failure.exit_code, "failed", self.job.gave_up
        else:
            reason, error = "failed" if code else "finished", self.job.gave_up or error
        record = as_record(failure) if failure is not None else None
        self.writer.emit("ended", exit_code=code, reason=reason, failure=record, error=error)
        self.writer.close(FLUSH_LIMIT_S)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run(control: int, events: int) -> NoReturn:
    """Run the job whose spec is the first line of `control`."""
    line = channel.read_line(control)
    if not line:
        os._exit(1)
    raise_open_files_limit()
    driver = Driver(json.loads(line.decode("ascii")), channel.EventWriter(events))
    signal.signal(signal.SIGINT, driver.on_signal)
    signal.signal(signal.SIGTERM, driver.on_signal)
    channel.watch_orders(control, driver.obey)
    driver.run()


def _load_horovod() -> Any:
    try:
        importlib.import_module("horovod")
    except ImportError:
        raise RuntimeError(
            f"there is no Horovod in {sys.executable}: build it with `distmon horovod build --python {sys.executable}`"
        ) from None
    try:
        return importlib.import_module("horovod.runner.launch")
    except ImportError as error:
        hint = ": install setuptools there" if "distutils" in str(error) else ""
        raise RuntimeError(f"the Horovod in {sys.executable} cannot be loaded ({error}){hint}") from None


def _parse(launch: Any, flags: List[str]) -> Any:
    """Horovod's own parsing, so that every flag of the installed version holds. The command is put in afterwards, untouched."""

    def refuse(parser: argparse.ArgumentParser, message: str) -> NoReturn:
        raise BadFlags(f"horovodrun refuses its flags: {message}")

    setattr(argparse.ArgumentParser, "error", refuse)  # noqa: B010
    sys.argv = ["horovodrun", *flags, "command"]
    return launch.parse_args()


def _limits(args: Any) -> Dict[str, float]:
    """How long Horovod waits, by its flags, its variables, and its defaults (HOROVOD_*_TIMEOUT of 0.28)."""

    def seconds(flag: str, variable: str, default: float) -> float:
        given = getattr(args, flag, None) or os.environ.get(variable, "")
        try:
            return float(given or default)
        except ValueError:
            return default

    return {
        "start": seconds("start_timeout", "HOROVOD_START_TIMEOUT", 30),
        "slots": seconds("elastic_timeout", "HOROVOD_ELASTIC_TIMEOUT", 600),
        "meeting": seconds("gloo_timeout_seconds", "HOROVOD_GLOO_TIMEOUT_SECONDS", 30),
    }


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines) or type(error).__name__
