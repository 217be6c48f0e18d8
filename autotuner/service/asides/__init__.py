"""Processes beside the service that compute what would hold others up."""
