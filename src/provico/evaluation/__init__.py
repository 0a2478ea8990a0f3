"""Evaluation of encoders: one protocol per file, each with a small frozen report."""
