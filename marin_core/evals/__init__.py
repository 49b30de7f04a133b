"""Evaluations of trained models: what each says, and how it is measured."""
