"""How data sets lie on disk: one reader a layout, all of them by name in `registry`."""
