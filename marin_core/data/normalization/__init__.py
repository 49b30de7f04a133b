"""Normalization: raw files as documents in one form, exact duplicates removed, sorted by id."""
