"""`difflang` and `python -m difflang`: a process of its own, which can be stopped at any moment."""

import gc
import sys

from difflang.base.process_termination import ProcessStopped, disarm_signals, exit_on_sigint

GC_THRESHOLD = (
    100_000  # made between two looks for garbage: after 700, as by itself, Python looks through all modules too
)


def main() -> None:
    """Run the command that the process was started with, and end the process with its exit code."""
    exit_on_sigint()
    gc.set_threshold(GC_THRESHOLD, 10, 10)
    try:
        from difflang.cli import main as command

        command()
    except ProcessStopped as stopped:
        sys.stderr.write(f"{stopped.message}\n")
        sys.exit(stopped.code)
    finally:
        disarm_signals()


if __name__ == "__main__":
    main()
