"""Clips in, an encoder out: the objective in a few lines, then the loop around it."""
