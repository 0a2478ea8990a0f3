"""Frames of video files: read by number, prepared for fast loading, and written."""
