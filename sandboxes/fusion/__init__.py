"""The protocol of SandboxFusion: routes for clients of SandboxFusion, and a sandbox on such a
server.
"""
