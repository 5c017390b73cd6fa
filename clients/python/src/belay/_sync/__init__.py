"""The blocking client. All modules but `transport` are made from those of `belay._aio`."""
