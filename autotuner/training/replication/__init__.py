"""Less exchange between replicas: compressed momenta every step, or parameters every few steps."""
