"""Trials as Jobs of a Kubernetes cluster."""
