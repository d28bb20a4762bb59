"""The executable specification: numpy, float64, one sequence, a literal reading of each formula. Never torch."""
