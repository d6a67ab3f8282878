"""The protocol of SandboxFusion: routes that speak it, and a sandbox behind a server that does."""
