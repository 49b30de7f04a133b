"""Contamination: documents that contain evaluation items."""
