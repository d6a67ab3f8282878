"""Selection of prompts and rollouts that are worth a gradient: filters, selections, budgets and
curricula.
"""
