"""Near-duplicates: MinHash candidates, their clusters, and what of them is confirmed and removed."""
