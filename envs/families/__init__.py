"""The environments that ludus ships, with a folder for each family."""
