"""How data sets lie on disk: one `Layout` for each way, all of them by name in `catalog.LAYOUTS`."""
