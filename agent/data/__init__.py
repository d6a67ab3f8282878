"""Data that people bring: conversations and preferences between answers, read from files or a hub.

loading.py         a source as items: unusable rows are counted by reason, repeated ones dropped
conversations.py   messages with tools, sharegpt, prompt and completion
preferences.py     pairs, rankings, ratings, and answers that are good or bad
"""
