"""Generated videos with known classes and known uncertainty, to try everything on."""
