"""What `python -m provico` does, with short runs; for processes that torchrun starts."""

from __future__ import annotations

from provico.cli import main
from short_runs import shorten

if __name__ == "__main__":
    shorten()
    main()
