"""One @deploy function per thing converged, in the order they run."""
