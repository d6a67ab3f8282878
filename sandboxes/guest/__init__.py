"""The code that runs inside a slot, as the guest.

It uses the standard library only, so that the interpreter from which every program is forked stays
small. The slot's interpreter imports this folder as the top-level package `guest`; everyone else
sees `ludus.sandboxes.guest`.
"""
