"""The asyncio client. Its modules are the source of the blocking ones in `belay._sync`."""
