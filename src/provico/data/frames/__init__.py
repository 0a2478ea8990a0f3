"""Frames of video files: read by number, stored for fast loading, and written."""
