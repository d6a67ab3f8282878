"""What a training run leaves behind: folder, checkpoints, metrics, notices and report."""
