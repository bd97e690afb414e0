"""A job's processes: how ranks are launched, come together, are watched, and end together."""
