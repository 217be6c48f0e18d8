"""The REST API as calls of Python, with the types of the service itself: ``Client``, and ``AsyncClient`` to await.

Source of what each call does: the API's own documentation (docs/api.md), whose operations have these names.
"""

from autotuner.client.call import ServiceError
from autotuner.client.clients import AsyncClient, Client
from autotuner.client.server_events import ServerEvent

__all__ = ["AsyncClient", "Client", "ServerEvent", "ServiceError"]
