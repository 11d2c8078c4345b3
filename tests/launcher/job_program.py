"""What `distmon run` does with a job, as a program of its own: events as JSON lines on stdout, the job's code as its own.

Tests kill it in all the ways in which distmon can be killed.
"""

import os
import signal
import sys
from pathlib import Path

from distmon.core.codec import encode_json
from distmon.core.errors import DistmonError
from distmon.launcher.flags import job_spec, split_arguments
from distmon.launcher.horovod import plan_job
from distmon.launcher.prepare import HostPreparation
from distmon.launcher.rundir import job_directory
from distmon.launcher.runner import Runner


def main(arguments: list[str]) -> int:
    try:
        backend = arguments.pop(0) if arguments[:1] == ["torchrun"] else "horovod"
        spec = job_spec(split_arguments(arguments, {}), backend=backend, cwd=str(Path.cwd()), environment=os.environ)
        with job_directory() as folder:
            plan = plan_job(spec, folder)
            runner = Runner(plan, HostPreparation(plan, None) if plan.others else None)
            for signum in (signal.SIGINT, signal.SIGTERM):
                signal.signal(signum, lambda number, _frame: runner.stop(number))
            runner.start()
            while runner.running:
                event = runner.wait(0.2)
                if event is not None:
                    sys.stdout.buffer.write(encode_json(event) + b"\n")
                    sys.stdout.buffer.flush()
            for event in runner.poll():
                sys.stdout.buffer.write(encode_json(event) + b"\n")
            assert runner.exit_code is not None
            return runner.exit_code
    except DistmonError as error:
        sys.stderr.write(f"distmon: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
