"""The sections of the settings, a module for each part of the trainer."""
