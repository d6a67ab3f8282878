"""Worker processes for user code, which can be killed without harm to anything else.

A server or trainer (the owner) never runs the code of an environment or verifier that does not
declare `never_blocks`. It sends calls to worker processes, enforces their deadlines by SIGKILL, and
tells every caller by type what became of the call.
"""
