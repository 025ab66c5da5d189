"""`python -m difflang`."""

from difflang.cli import main

main()
