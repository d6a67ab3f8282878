"""The environments that ludus ships, one folder for each family."""
