"""The set Õ(m,n) itself, with NumPy and SciPy alone: samplers, membership, geometry, random streams, errors."""
