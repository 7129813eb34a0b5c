"""Training that stays on the set, in JAX and Keras; PyTorch's is `stiefel_init.torch.optim`."""
