"""Models of policies: loading, weights, adapters, images, devices, and the memory of one model."""
