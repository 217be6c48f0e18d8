"""A cluster that speaks the protocol of Kubernetes over HTTP, and whose pods are processes of this machine."""
