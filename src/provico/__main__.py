"""`python -m provico` is the same as the `provico` command."""

import sys

if not sys.flags.safe_path:
    # Python puts the current folder first on the path. It may contain untrusted modules.
    del sys.path[0]

from provico.cli import main

main()
