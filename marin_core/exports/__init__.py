"""Checkpoints as Hugging Face folders, which are compared with what was trained before anybody gets them."""
