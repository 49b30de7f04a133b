"""Mixing: shares of sources, the order in which training sees their sequences, and replay."""
