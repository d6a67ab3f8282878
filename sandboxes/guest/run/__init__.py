"""The warm interpreter of a slot and the child process of each run."""
