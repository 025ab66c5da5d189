"""`difflang` and `python -m difflang`: a process of its own, which can be stopped at any moment."""

import gc
import sys

from difflang.base.process_termination import Stopped, end_on_signals, leave

OBJECTS = 100_000  # made between two looks for garbage: after 700, as by itself, Python looks through all modules too


def main() -> None:
    """Run the command that the process was started with, and end the process with its exit code."""
    end_on_signals()
    gc.set_threshold(OBJECTS, 10, 10)
    try:
        from difflang.cli import main as command

        command()
    except Stopped as stopped:
        sys.stderr.write(f"{stopped.said}\n")
        sys.exit(stopped.code)
    finally:
        leave()


if __name__ == "__main__":
    main()
