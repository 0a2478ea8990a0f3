"""Videos that are drawn, with known classes and known uncertainty: data to try everything on."""
