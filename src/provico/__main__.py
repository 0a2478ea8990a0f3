"""`python -m provico` is the same as the `provico` command."""

import sys

if not sys.flags.safe_path:
    # Python has put the current folder first. It may be a collection that holds modules of a stranger.
    del sys.path[0]

from provico.cli import main

main()
