"""An engine that no stack file knows, taken on as the stack `previous` so that it can come back."""
