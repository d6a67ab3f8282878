"""`ludus/files-v0`: the policy puts a tree of files in order, by shell commands in a sandbox."""

from .files_env import Files

__all__ = ["Files"]
