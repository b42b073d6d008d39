"""Shared plumbing: files, stamps and digests, safetensors containers, words of messages."""
