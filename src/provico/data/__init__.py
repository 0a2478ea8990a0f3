"""VIDEO FILE -> CLIPS.

Read in this order: `layouts` (how data sets lie on disk), `frames` (frames by number), `catalog` (which
videos there are), `library` (what is remembered between runs), `isolated` and `scan` (decode every file once,
in processes that may crash), `clips` (which frames make a clip), `crops` and `transforms` (what is done to
their pixels), `batch_order` and `loader` (batches for training and evaluation), `corrupt` (clips made
uncertain on purpose), `demo_set` (videos to try everything on).
"""
