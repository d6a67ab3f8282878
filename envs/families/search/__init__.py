"""The search environment: multi-hop questions over a corpus, and Search-R1's retriever protocol."""
