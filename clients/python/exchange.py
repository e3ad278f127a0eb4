"""Sends a request and reads its complete response within a time limit."""

from threading import Timer
from time import monotonic
from typing import Any, Dict, Optional, Tuple, Union

from urllib3.exceptions import HTTPError, TimeoutError
from urllib3.util import make_headers

from branded_phone_numbers_client.api_client import RequestSerialized
from branded_phone_numbers_client.api_response import ApiResponse
from branded_phone_numbers_client.exceptions import ApiException

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
    is the limits for connecting and for the response.
    """
    # By default, urllib3 would retry three times.
    client.rest_client.pool_manager.connection_pool_kw.setdefault("retries", False)
    limit = timeout or DEFAULT_TIMEOUT
    seconds = sum(limit) if isinstance(limit, tuple) else limit
    end = monotonic() + seconds
    response = client.call_api(*request, _request_timeout=limit)
    # urllib3's limit applies to each chunk of the body; this one applies to the complete body.
    watch = Timer(end - monotonic(), response.response.shutdown)
    watch.daemon = True
    watch.start()
    try:
        body: bytes = response.read()
    except HTTPError as error:
        if monotonic() < end:
            raise
        raise TimeoutError(f"no complete response within {seconds:g} seconds") from error
    finally:
        watch.cancel()
    if not 200 <= response.status <= 299:
        ApiException.from_response(http_resp=response, body=None, data=None)
    try:
        data = client.deserialize(body.decode(), types[str(response.status)], "application/json")
        if data is None:
            raise ValueError("null")
    except (LookupError, TypeError, ValueError) as error:
        raise ApiException(http_resp=response) from error
    # Without validation, which would turn the case-insensitive headers into a dict.
    return ApiResponse[Any].model_construct(
        status_code=response.status, headers=response.headers, data=data, raw_data=body
    )
