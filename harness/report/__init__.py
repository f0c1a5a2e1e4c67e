"""Reports: what people and machines read of a session."""
