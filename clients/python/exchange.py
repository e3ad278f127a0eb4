"""A request and its whole response, within a time limit."""

from threading import Timer
from time import monotonic
from typing import Any, Dict, Optional, Tuple, Union

from urllib3.exceptions import HTTPError, TimeoutError

from branded_phone_numbers_client.api_client import RequestSerialized
from branded_phone_numbers_client.api_response import ApiResponse
from branded_phone_numbers_client.exceptions import ApiException

LIMIT = 30.0
"""Seconds that a request may take unless the caller says otherwise."""


def exchange(
    client: Any,
    request: RequestSerialized,
    types: Dict[str, Optional[str]],
    timeout: Union[None, float, Tuple[float, float]],
) -> ApiResponse[Any]:
    """Sends a request once and reads its response as the type that its status has.

    ``client`` is an ``ApiClient``, whose methods have no types. A ``timeout`` of two numbers is for connecting and for
    the response.
    """
    # By default, urllib3 would retry three times.
    client.rest_client.pool_manager.connection_pool_kw.setdefault("retries", False)
    limit = timeout or LIMIT
    seconds = sum(limit) if isinstance(limit, tuple) else limit
    end = monotonic() + seconds
    response = client.call_api(*request, _request_timeout=limit)
    # urllib3's limit is for each chunk of the body; this one is for all of it.
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
    # Not validated, which would make a dict of the headers: these are found in any case.
    return ApiResponse[Any].model_construct(
        status_code=response.status, headers=response.headers, data=data, raw_data=body
    )
