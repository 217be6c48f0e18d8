"""The REST API as calls of Python, with the types of the service itself.

Source of what each call does: the API's own documentation (docs/api.md), whose operations have these names.
"""

from autotuner.client.answers import ServerEvent, ServiceError
from autotuner.client.client import Client

__all__ = ["Client", "ServerEvent", "ServiceError"]
