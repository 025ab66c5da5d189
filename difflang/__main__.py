"""The entry point of `difflang` and `python -m difflang`, as a process that can be stopped at any moment."""

import gc
import sys

from difflang.base.process_termination import ProcessStopped, disarm_signals, exit_on_sigint, guard_standard_streams

# New objects between two garbage collections. With Python's default of 700 each collection would traverse all loaded
# modules again and again.
GC_THRESHOLD = 100_000


def main() -> None:
    """Run the command of this process, and exit with its code."""
    guard_standard_streams()
    exit_on_sigint()
    gc.set_threshold(GC_THRESHOLD, 10, 10)
    try:
        from difflang.cli import main as command

        try:
            command()
        finally:
            if not sys.stdout.closed:  # the language server closes it
                sys.stdout.flush()
    except ProcessStopped as stopped:
        sys.stderr.write(f"{stopped.message}\n")
        sys.exit(stopped.code)
    finally:
        disarm_signals()


if __name__ == "__main__":
    main()
