"""From video files to batches of clips.

Read in this order: `catalog` (which videos there are), `frame_index` and `video` (frames by number),
`library` (what is remembered between runs), `clips` (which frames make a clip), `scan` and `cache`
(look at every file once; store frames for fast loading), `transforms`, `loader` (batches for training
and evaluation), `corrupt` (clips made uncertain on purpose), `synthetic` (the demo set).
"""
