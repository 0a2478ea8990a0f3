"""Cleaning a collection: what to drop, trim, look at or keep, and why."""
