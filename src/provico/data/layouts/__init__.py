"""How data sets lie on disk: one `Layout` for each way, all of them by name in `catalog.LAYOUTS`.

Read in this order: `video_files` (which files are videos), `listing` (what a layout is and what it lists),
`official` (public benchmarks), `own` (users' lists and folders).
"""
