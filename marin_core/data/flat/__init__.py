"""Texts as flat arrays of code points, words and n-grams: what makes the stages fast."""
