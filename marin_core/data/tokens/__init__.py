"""Tokens: tokenizers, fast encoding under a judge, and shards in Levanter's cache format."""
