"""stageb: rollout-driven learning on Lightning Fabric."""

__version__ = "0.1.0.dev0"
