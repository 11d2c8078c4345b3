"""`python -m tests.fuzz`: so many inputs for each target; a finding is told with the seed that makes it again."""

from __future__ import annotations

import argparse
import random
import sys
import time

from tests.fuzz.targets import TARGETS


def main() -> int:
    """0 without a finding."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="for each target")
    parser.add_argument("--only", choices=TARGETS)
    parser.add_argument("--first-seed", type=int, default=0)
    arguments = parser.parse_args()
    findings = 0
    for name in [arguments.only] if arguments.only else TARGETS:
        begun = time.process_time()
        found = 0
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.inputs):
            try:
                TARGETS[name](random.Random(seed))
            except Exception as error:
                found += 1
                if found <= 5:
                    sys.stderr.write(f"{name}, seed {seed}: {type(error).__name__}: {error}\n")
        findings += found
        seconds = time.process_time() - begun
        sys.stdout.write(f"{name}: {arguments.inputs} inputs in {seconds:.0f} s of CPU time, {found} findings\n")
        sys.stdout.flush()
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
