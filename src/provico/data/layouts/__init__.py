"""Layouts of data sets on disk; `catalog.LAYOUTS` lists them by name."""
