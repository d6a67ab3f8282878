"""Chat templates of released models: what they lose, what repairs that, and templates for training.

text        renders a template by itself, without a tokenizer
fallbacks   repairs of what a template cannot show
probe       finds out what a template shows, and chooses the repairs
training    the project's own templates, chosen by the digest of the template found
choice      decides between a model's own template and one for training
"""
