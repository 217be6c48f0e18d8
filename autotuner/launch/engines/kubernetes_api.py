"""The part of the Kubernetes API that the engine uses, through the official client; answers stay plain JSON.

The client's models are not used to read answers, because they refuse fields that a newer cluster adds.
"""

from __future__ import annotations

import builtins
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Literal

import structlog
from kubernetes import client, config
from kubernetes.client import ApiException
from kubernetes.utils.keepalive import tcp_keepalive_socket_options
from urllib3.exceptions import HTTPError

from autotuner.core.errors import InvalidInput
from autotuner.launch.engines.engine import EngineRefused, EngineUnavailable
from autotuner.launch.engines.kubernetes_objects import KubernetesSettings

Kind = Literal["Job", "Pod"]

_KUEUE = ("kueue.x-k8s.io", "v1beta1")
_CONNECT_S = 5.0
_ANSWER_S = 20.0
_SILENCE_S = 3600.0
"""Seconds without output after which the log of a container is opened again; TCP keepalive finds dead connections
earlier."""

_MOST_CONNECTIONS = 1024
"""Maximum number of open connections: one for the log of each pod, and a few more."""

_NUM_CONFLICTS = 5
_CONFLICT_S = 0.2


class Missing(EngineUnavailable):
    """Raised when Kubernetes has no object with the requested name."""


class Stream:
    """The lines of an HTTP response that stays open, such as the log of a running container.

    Any thread may close it.
    """

    def __init__(self, response: Any) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        """Yield the lines as they arrive, each with its line end; a last line that was cut off has none.

        Raises:
            EngineUnavailable: The connection broke.
        """
        rest = b""
        for chunk in self._chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (line + b"\n" for line in lines)
        if rest:
            yield rest

    def close(self) -> None:
        """End the iteration over the lines, even if another thread waits for the next line."""
        with suppress(ValueError, RuntimeError, OSError):  # it has ended by itself
            self._response.shutdown()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        self._response.close()
        self._response.release_conn()

    def _chunks(self) -> Iterator[bytes]:
        try:
            yield from self._response.stream(amt=None, decode_content=False)
        except (HTTPError, OSError, ValueError) as error:  # ValueError: the connection was closed between two reads
            said = f"the connection to the API server of Kubernetes broke, and is tried again: {error}"
            raise EngineUnavailable(said) from error


class KubernetesApi:
    """Requests to the Kubernetes API for one namespace of a cluster.

    Args:
        settings: The address of the cluster, and the account to use.

    Raises:
        InvalidInput: The kubeconfig or the service account does not exist.
    """

    def __init__(self, settings: KubernetesSettings) -> None:
        self._namespace = settings.namespace
        self._client = _client(settings)
        self._core, self._batch = client.CoreV1Api(self._client), client.BatchV1Api(self._client)
        self._custom = client.CustomObjectsApi(self._client)
        self._versions, self._rights = client.VersionApi(self._client), client.AuthorizationV1Api(self._client)

    def create(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Create a Job and return it as the cluster stores it. If a Job of that name exists, return the existing Job.

        Raises:
            EngineRefused: The cluster does not accept the Job; the message says why.
            EngineUnavailable: The cluster cannot create it now; try again later.
        """
        create: Callable[..., Any] = self._batch.create_namespaced_job
        try:
            return _document(_answered(partial(create, self._namespace, body=job)))
        except _Exists:
            found = self.get(job["metadata"]["name"])
            if found is None:
                raise EngineUnavailable(
                    "a Job with this name is still being deleted; the engine tries again later"
                ) from None
            return found
        except Missing as error:
            raise EngineRefused(
                f"the namespace {self._namespace} does not exist ({error}); create it, or correct the engine's "
                "setting namespace"
            ) from error

    def create_service(self, document: Mapping[str, Any]) -> None:
        """Create a Service from its document. If a Service of that name exists, nothing happens."""
        create: Callable[..., Any] = self._core.create_namespaced_service
        with suppress(_Exists):
            _document(_answered(partial(create, self._namespace, document)))

    def get(self, name: str) -> dict[str, Any] | None:
        """Return the Job of that name, or None if it does not exist."""
        read: Callable[..., Any] = self._batch.read_namespaced_job
        try:
            return _document(_answered(partial(read, name, self._namespace)))
        except Missing:
            return None

    def delete(self, name: str) -> None:
        """Delete the pods of the Job with that name, and then the Job. If the Job does not exist, nothing happens."""
        delete: Callable[..., Any] = self._batch.delete_namespaced_job
        with suppress(Missing):
            _document(_answered(partial(delete, name, self._namespace, propagation_policy="Foreground")))

    def list(self, kind: Kind, selector: str) -> list[dict[str, Any]]:
        """Return all Jobs, or all pods, that match a label selector."""
        lister: Callable[..., Any] = (
            self._batch.list_namespaced_job if kind == "Job" else self._core.list_namespaced_pod
        )
        found: list[dict[str, Any]] = _document(_answered(partial(lister, self._namespace, label_selector=selector)))[
            "items"
        ]
        return found

    def log(self, pod: str, container: str) -> Stream:
        """Return the output of a container, from its first byte to its end, as a stream that stays open.

        Each line begins with its timestamp.
        """
        log: Callable[..., Any] = partial(
            self._core.read_namespaced_pod_log, pod, self._namespace, container=container, follow=True, timestamps=True
        )
        return Stream(_answered(log, read_s=_SILENCE_S))

    def version(self) -> str:
        """Return the version of Kubernetes that the cluster runs."""
        return str(_document(_answered(self._versions.get_code))["gitVersion"])

    def namespaces(self) -> builtins.list[str] | None:
        """Return the names of all namespaces of the cluster, or None if the account may not list namespaces.

        Jobs can run without the right to list namespaces.
        """
        lister: Callable[..., Any] = self._core.list_namespace
        return _names(lister)

    def local_queues(self) -> builtins.list[str] | None:
        """Return the names of Kueue's local queues in the namespace, or None if the account may not list queues.

        Raises:
            EngineRefused: The cluster has no Kueue.
        """
        try:
            return _names(partial(self._custom.list_namespaced_custom_object, *_KUEUE, self._namespace, "localqueues"))
        except Missing as error:
            raise EngineRefused(
                f"Kueue is not installed on the cluster ({error}); install it, or set kueue to false in the settings "
                "of the engine"
            ) from error

    def may(self, verb: str, group: str, resource: str, subresource: str = "") -> bool:
        """Return True if the account may apply a verb, such as ``create``, to a resource in the namespace.

        ``group`` is the API group of the resource.
        """
        attributes = {"namespace": self._namespace, "verb": verb, "group": group, "resource": resource}
        if subresource:
            attributes["subresource"] = subresource
        asked = client.V1SelfSubjectAccessReview.model_validate({"spec": {"resourceAttributes": attributes}})
        review = _document(_answered(partial(self._rights.create_self_subject_access_review, body=asked)))
        return bool(review["status"]["allowed"])

    def close(self) -> None:
        """Close the connections to the cluster."""
        self._client.close()


class _Exists(Exception):
    """Raised when an object of that name already exists."""


def _client(settings: KubernetesSettings) -> Any:
    configuration = client.Configuration()
    configuration.retries = False  # the engine itself decides what is tried again
    configuration.connection_pool_maxsize = _MOST_CONNECTIONS
    configuration.socket_options = tcp_keepalive_socket_options()
    load: Any = config  # the client has no type annotations
    try:
        if settings.kubeconfig:
            path, context = settings.kubeconfig, settings.context or None
            load.load_kube_config(path, context=context, client_configuration=configuration)
        else:
            load.load_incluster_config(client_configuration=configuration)
    except (config.ConfigException, OSError, ValueError) as error:
        rule = f"must be a file that says where the cluster is, for example ~/.kube/config ({error})"
        raise InvalidInput("kubeconfig", settings.kubeconfig, rule) from error
    return client.ApiClient(configuration)


def _names(lister: Callable[..., Any]) -> list[str] | None:
    """Return the names of all objects that the call lists; None if that is forbidden."""
    try:
        return [one["metadata"]["name"] for one in _document(_answered(lister))["items"]]
    except EngineRefused:
        return None


def _answered(call: Callable[..., Any], *, read_s: float = _ANSWER_S) -> Any:
    """Make the call and return its response, whose body is not read yet; conflicts are tried again a few times.

    Raises:
        EngineUnavailable: The cluster does not answer or cannot serve the request now.
        EngineRefused: The cluster refused the request.
    """
    for num_conflicts in range(_NUM_CONFLICTS):
        try:
            return call(_preload_content=False, _request_timeout=(_CONNECT_S, read_s))
        except ApiException as error:
            reason, message = _said(error)
            if error.status == 409 and reason != "AlreadyExists" and num_conflicts + 1 < _NUM_CONFLICTS:
                time.sleep(_CONFLICT_S)
                continue
            raise _news(error.status or 0, reason, message) from error
        except (HTTPError, OSError) as error:
            raise EngineUnavailable(f"Kubernetes does not answer: {error}") from error
    raise AssertionError("unreachable: the last conflict is raised")


def _news(status: int, reason: str, message: str) -> Exception:
    """Return the exception for an answer that is not a success."""
    detail = f"Kubernetes answered {status}: {message}"
    match status:
        case 404:
            return Missing(detail)
        case 409 if reason == "AlreadyExists":
            return _Exists(detail)
        case 403 if "exceeded quota" in message:
            return EngineUnavailable(detail)
        case 400 | 403 | 405 | 413 | 422:
            return EngineRefused(detail)
        case _:
            return EngineUnavailable(detail)


def _said(error: Any) -> tuple[str, str]:
    """Return the reason and the message of a failed request, from the Kubernetes Status in its body if there is one."""
    with suppress(TypeError, ValueError, AttributeError):
        body = json.loads(error.body)
        return str(body.get("reason", "")), str(body.get("message", ""))
    return "", str(error.body or error.reason or "")


def _document(response: Any) -> dict[str, Any]:
    try:
        document = json.loads(response.data)
    except (HTTPError, OSError, ValueError) as error:
        raise EngineUnavailable(f"the answer of Kubernetes could not be read: {error}") from error
    finally:
        response.release_conn()
    if not isinstance(document, dict):
        raise EngineUnavailable(
            "the API server of Kubernetes did not answer with a JSON object; check its address in the kubeconfig"
        )
    return document


# The output of a container, followed by a thread and kept from its first byte.

_MOMENT = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d) ")
"""Timestamp at the start of each line that the container printed. Lines without one are messages of the kubelet about
the log."""

_log = structlog.get_logger(__name__)

_FIRST_RETRY_S = 0.1
_LAST_RETRY_S = 2.0


class PodLog:
    """A copy of a container's log, which a thread follows until the container has ended.

    If the connection breaks, the thread opens it again. Kubernetes cannot serve a log from a given byte or line.
    Therefore the thread reads the log from its beginning again, and skips the lines that it already has. It recognises
    a line by its text and by its timestamp in nanoseconds.

    Args:
        follow: Opens the log; each line begins with its timestamp.
        is_over: Returns True if the container has ended, or if its pod is gone.
        last_words: Receives the whole output of the ended container, and returns a text to add after it.
    """

    def __init__(
        self, follow: Callable[[], Stream], is_over: Callable[[], bool], last_words: Callable[[bytes], bytes]
    ) -> None:
        self._follow = follow
        self._is_over = is_over
        self._last_words = last_words
        self._printed = bytearray()
        self._known: Counter[bytes] = Counter()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._stream: Stream | None = None
        self._thread = threading.Thread(target=self._run, name="pod-log", daemon=True)
        self._thread.start()

    def read(self, offset: int) -> bytes:
        """Return the bytes that the container has printed after the first ``offset`` bytes.

        While the container runs, the result contains only complete lines.
        """
        with self._lock:
            return bytes(self._printed[offset:])

    def wait(self, timeout_s: float) -> None:
        """Wait until the whole output has been read, but at most ``timeout_s`` seconds."""
        self._thread.join(max(0.0, timeout_s))

    def stop(self) -> None:
        """End the thread that follows the log, and wait for it."""
        self._stopped.set()
        if self._stream is not None:
            self._stream.close()
        self._thread.join()

    def _run(self) -> None:
        retry_s = _FIRST_RETRY_S
        while not self._stopped.is_set():
            was_over, num_bytes = self._is_over(), len(self._printed)
            try:
                is_whole = self._read_through(is_last=was_over)
            except Missing:
                is_whole = True  # a pod that is gone writes no more output
            except (EngineUnavailable, EngineRefused):  # refused: the container has not started yet
                is_whole = False
            except Exception:  # the thread must go on, or the trial would seem to hang
                is_whole = False
                _log.exception("kubernetes.log_failed")
            if is_whole and was_over:
                self._add(self._last_words(bytes(self._printed)))
                return
            retry_s = _FIRST_RETRY_S if len(self._printed) > num_bytes else min(2 * retry_s, _LAST_RETRY_S)
            self._stopped.wait(retry_s)

    def _read_through(self, *, is_last: bool) -> bool:
        """Read the log as far as it goes now, and return True if the end was reached."""
        known = self._known.copy()
        with self._follow() as self._stream:
            for line in self._stream if not self._stopped.is_set() else ():
                if not line.endswith(b"\n") and not is_last:
                    return False  # the rest of this line is read again later
                if known[line]:
                    known[line] -= 1
                elif moment := _MOMENT.match(line):
                    self._known[line] += 1
                    self._add(line[moment.end() :])
        return not self._stopped.is_set()

    def _add(self, printed: bytes) -> None:
        with self._lock:
            self._printed += printed
