"""How the demo's tickets were made: ``python -m lab.demo.make`` writes them."""
