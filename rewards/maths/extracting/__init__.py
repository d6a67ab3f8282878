"""Where in a response its answer is: boxes, tags, closing sentences, last expressions."""
