"""Networks from clips to features, all of them by name in `registry`."""
