"""`python -m difflang.cli`."""

from difflang.cli import main

main()
