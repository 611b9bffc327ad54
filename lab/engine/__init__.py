"""The lab's engine: two ranks that answer together, and fail as the real ones do.

Python standard library only; it runs in the guests' containers with the interpreter of the
guest's own distribution, under emulation, so imports are kept few.
"""
