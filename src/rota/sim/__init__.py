"""The product under simulation: virtual time and seeded chance, so that hours pass in moments and every run repeats."""
