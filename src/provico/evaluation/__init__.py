"""What an encoder is worth: one protocol a file, each gives a small frozen report."""
