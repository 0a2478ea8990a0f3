"""Frames of video files: read by number, stored for fast loading, and written.

Read in this order: `frame_index` (what one full decode has taught), `picture` (one decoded frame), `video`
(any frame by number), `thumbnail` (what is shown of a video in small), `encode` (frames to a video file),
`frame_file` and `stores` (the copy of one video), `prepared` (copies of all).
"""
