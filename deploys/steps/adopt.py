"""What runs now is kept before anything touches it."""

from __future__ import annotations

from operations.adopt import adopt
from operations.run.job import Here, checklist, together


@checklist("Adopt")
def taken_on(here: Here) -> None:
    """All hosts keep their rank, then this machine writes down what they keep."""
    adopt.kept(here, name="What this rank was made from is kept")
    together(here, "Every rank is kept")
    if here.rank == 0:
        adopt.written(here, name="Stack previous written")
