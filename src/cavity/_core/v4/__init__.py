"""Kernels compiled for x86-64-v4 (AVX-512)."""
