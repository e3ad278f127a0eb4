"""Sends a request and reads its complete response within a time limit."""

import json
from concurrent.futures import Future
from concurrent.futures import TimeoutError as WaitTimeout
from contextlib import suppress
from contextvars import ContextVar, copy_context
from socket import SHUT_RDWR
from threading import Thread
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar, Union
from urllib.parse import urljoin

from urllib3.exceptions import SSLError, TimeoutError
from urllib3.util import make_headers

from branded_phone_numbers_client.api_client import RequestSerialized
from branded_phone_numbers_client.api_response import ApiResponse
from branded_phone_numbers_client.exceptions import ApiException, ApiValueError
from branded_phone_numbers_client.schema import PAGE_SCHEMA, conforms

T = TypeVar("T")

DEFAULT_TIMEOUT = 30.0
"""The default time limit of a request, in seconds."""
ACCEPT_ENCODING = make_headers(accept_encoding=True)["accept-encoding"]
"""The encodings that urllib3 decodes: gzip, and more if their packages are installed."""


def exchange(
    client: Any,
    request: RequestSerialized,
    types: Dict[str, Optional[str]],
    timeout: Union[None, float, Tuple[float, float]],
) -> ApiResponse[Any]:
    """Sends a request once and decodes its response as the type for its status.

    ``client`` is an ``ApiClient``; it is untyped because the methods of ``ApiClient`` are. ``timeout`` is in seconds; a pair
    is the limits for connecting and for the response, whose sum bounds both. Raises ``ApiValueError`` if the base URL has no
    scheme.
    """
    base = client.configuration.host
    if not base.startswith(("http://", "https://")):
        raise ApiValueError(f"the base URL must begin with http:// or https://, unlike {base}")
    manager = client.rest_client.pool_manager
    # By default, urllib3 would retry three times.
    manager.connection_pool_kw.setdefault("retries", False)
    _watch_sockets(manager)
    limit = timeout or DEFAULT_TIMEOUT
    response, body = _within(sum(limit) if isinstance(limit, tuple) else limit, lambda: _send(client, request, limit))
    if 300 <= response.status <= 399 and "Location" in response.headers:
        target = _redirect(request[1], response.headers["Location"], request[1][len(base.rstrip("/")) :])
        raise ApiException(http_resp=response, found=f"redirected to {target}: set that as the base URL")
    if not 200 <= response.status <= 299:
        ApiException.from_response(http_resp=response, body=None, data=None)
    try:
        text = body.decode()
        if not conforms(json.loads(text), PAGE_SCHEMA):
            raise ValueError("not a page")
        data = client.deserialize(text, types[str(response.status)], "application/json")
    except (LookupError, TypeError, ValueError) as error:
        raise ApiException(http_resp=response) from error
    # Without validation, which would turn the case-insensitive headers into a dict.
    return ApiResponse[Any].model_construct(
        status_code=response.status, headers=response.headers, data=data, raw_data=body
    )


def _send(client: Any, request: RequestSerialized, limit: Union[float, Tuple[float, float]]) -> Tuple[Any, bytes]:
    try:
        response = client.call_api(*request, _request_timeout=limit)
    except ApiException as error:
        # The generated client replaces this exception, as if there had been a response.
        if isinstance(error.__context__, SSLError):
            raise error.__context__ from None
        raise
    return response, response.read()


def _redirect(url: str, location: str, path: str) -> str:
    """Returns the base URL to which the ``Location`` of a response leads; ``path`` is the end of the request's ``url``."""
    with suppress(ValueError):
        location = urljoin(url, location)
    return location.partition("?")[0].removesuffix(path.partition("?")[0])


def _within(seconds: float, send: Callable[[], T]) -> T:
    """Calls ``send`` in a thread, and waits for it.

    Nothing else bounds a slow search for the address of a host, the attempts to connect to each of its addresses, and
    headers that come slowly. Raises urllib3's ``TimeoutError`` after so many seconds.
    """
    sockets: List[Any] = []
    result: Future[T] = Future()

    def run() -> None:
        _sockets.set(sockets)
        try:
            result.set_result(send())
        except BaseException as error:
            result.set_exception(error)

    Thread(target=copy_context().run, args=(run,), daemon=True).start()
    try:
        return result.result(seconds)
    except WaitTimeout:
        if result.done():
            return result.result()
        raise TimeoutError(f"no complete response within {seconds:g} seconds") from None
    finally:
        if not result.done():
            for socket in sockets:
                with suppress(OSError):
                    socket.shutdown(SHUT_RDWR)


_sockets: ContextVar[List[Any]] = ContextVar("sockets")
"""The sockets on which the current exchange waits for a response."""


def _watch_sockets(manager: Any) -> None:
    """Makes the connections of a ``PoolManager`` add their sockets to ``_sockets``, so that the time limit can end them."""
    pools = manager.pool_classes_by_scheme
    if not any(issubclass(pool.ConnectionCls, _Watched) for pool in pools.values()):
        manager.pool_classes_by_scheme = {scheme: _watched(pool) for scheme, pool in pools.items()}


def _watched(pool: Any) -> Any:
    connection = type(pool.ConnectionCls.__name__, (_Watched, pool.ConnectionCls), {})
    return type(pool.__name__, (pool,), {"ConnectionCls": connection})


class _Watched:
    sock: Any

    def getresponse(self) -> Any:
        _sockets.get([]).append(self.sock)
        return super().getresponse()  # type: ignore[misc]
