"""HTTP shared by servers and clients: typed requests and answers, retries, streams, limits."""
