"""Videos that are drawn, with known classes and known uncertainty: data to try everything on.

Read in this order: `motion` (what moves how: the class), `look` (colours and shapes, which say nothing about
it), `scene` (both as frames), `videos` (the whole set on disk).
"""
