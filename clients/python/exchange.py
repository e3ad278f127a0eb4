"""A request and its whole answer, within a time limit."""

from threading import Timer
from time import monotonic
from typing import Any, Dict, Optional, Tuple, Union

from urllib3.exceptions import HTTPError, TimeoutError

from branded_phone_numbers_client.api_client import RequestSerialized
from branded_phone_numbers_client.api_response import ApiResponse

LIMIT = 30.0
"""Seconds that a request may take unless the caller says otherwise."""


def exchange(
    client: Any,
    request: RequestSerialized,
    types: Dict[str, Optional[str]],
    timeout: Union[None, float, Tuple[float, float]],
) -> ApiResponse[Any]:
    """Sends a request once and reads its answer as the type that its status has.

    ``client`` is an ``ApiClient``, whose methods have no types. A ``timeout`` of two numbers is for connecting and for
    the answer.
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
        response.read()
    except HTTPError as error:
        if monotonic() < end:
            raise
        raise TimeoutError(f"no complete answer within {seconds:g} seconds") from error
    finally:
        watch.cancel()
    answer: ApiResponse[Any] = client.response_deserialize(response, types)
    return answer
