"""Networks from clips to features; `registry` lists them by name."""
