"""Settings for every test."""

import os

# Tiny models are faster on one thread, and tests share the machine with the servers they start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
