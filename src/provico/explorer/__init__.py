"""One page to search, doubt and clean a collection: what `provico serve INDEX` opens.

Read in this order:

    settings     what is served, to whom
    problems     what a client is told when something cannot be done
    schemas      the JSON of the API, with examples
    collection   one version of the index, as the pages want it, and the axes of its maps
    workers      decoding and embedding in child processes, with limits
    files        files that may be served, and parts of them
    curation     what is proposed and decided for the videos of a view, and groups of duplicates
    state        what the routes share
    guard        who may ask: host, token, origin, size; and what every answer carries
    browse, find, judge, media, runs, curate ...     the routes
    pages        the pages and their files
    app          all of it together
    front        the pages alone, until the rest is there
    server       the process around it

docs/explorer.md describes the API and what is done for safety.
"""
