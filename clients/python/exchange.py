"""A request and all of its answer, within a time limit."""

from threading import Timer
from time import monotonic
from typing import Optional, Tuple, Union

from urllib3.exceptions import HTTPError, TimeoutError

from branded_phone_numbers_client.api_client import ApiClient, RequestSerialized
from branded_phone_numbers_client.rest import RESTResponse

LIMIT = 30.0
"""Seconds that a request may take where its caller does not say."""


def exchange(
    client: ApiClient, request: RequestSerialized, timeout: Union[None, float, Tuple[float, float]]
) -> RESTResponse:
    """Sends a request once and reads its answer.

    A ``timeout`` of two numbers is for connecting and for the answer.
    """
    # By itself, urllib3 would try again three times.
    client.rest_client.pool_manager.connection_pool_kw.setdefault("retries", False)
    limit = timeout or LIMIT
    seconds = sum(limit) if isinstance(limit, tuple) else limit
    end = monotonic() + seconds
    response: RESTResponse = client.call_api(*request, _request_timeout=limit)
    # urllib3's limit is for each piece of the body; this one is for all of it.
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
    return response
