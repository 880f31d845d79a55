"""What single lessons need beside the engine: naive versions, costs, data, simulations."""
