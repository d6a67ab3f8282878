"""The demos: RL repairs a fault of a small policy, and teaches released weights to answer."""
