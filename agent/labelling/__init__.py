"""`ludus label`: a local page on which people compare, rank and rate answers.

sheet.py       what is shown: items from files and runs, blinded, in an order for each person
journal.py     the rows that people have given, on the disk before the page goes on
agreement.py   Cohen's kappa, Krippendorff's alpha, and who is fast, careless or one-sided
server.py      the page and its requests
"""
