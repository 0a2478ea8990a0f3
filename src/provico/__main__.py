"""`python -m provico` is the same as the `provico` command."""

from provico.cli import main

main()
