"""Cleaning a collection: what to drop, trim, review or keep, and why."""
