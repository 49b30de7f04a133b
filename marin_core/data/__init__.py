"""Data: sources, curated documents, token shards, mixtures, and the order in which training sees them."""
