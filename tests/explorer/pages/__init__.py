"""Tests of the pages, which share a browser."""
