"""What `python -m provico` does, with a short last step; for processes that torchrun starts."""

from __future__ import annotations

from provico.cli import main
from short_last_step import shorten

if __name__ == "__main__":
    shorten()
    main()
