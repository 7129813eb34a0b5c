"""The fused engine's Triton kernels: start with README.md, then read `propagation`, which calls the phases in order."""
