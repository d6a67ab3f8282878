"""What a training run leaves behind: folder, checkpoints, metrics, findings and report."""
