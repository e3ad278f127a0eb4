"""Retries requests after transient failures."""

import ssl
import time
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from random import random
from typing import Callable, TypeVar

from urllib3.exceptions import HTTPError, NewConnectionError, ProtocolError, ProxyError, SSLError

from branded_phone_numbers_client.exceptions import ApiException

T = TypeVar("T")

FIRST_WAIT = 0.5
"""The least wait before the first retry, in seconds. It doubles with each retry."""
MAX_DOUBLED_WAIT = 8.0
"""Bounds the doubling, so that a call soon notices that the service is back."""
MAX_RANDOM = 0.5
"""A random part of each wait in seconds, so that processes with the same key do not all retry at the same time."""
TRANSIENT_STATUSES = (429, 502, 503, 504)


def retrying(send: Callable[[], T], pace: Callable[[Callable[[], T]], T], retry_for: float) -> T:
    """Calls ``send`` through ``pace``, and retries after a 429, 502, 503, 504 or a broken connection.

    It does so until ``send`` and the waits before retries would take more than ``retry_for`` seconds in total. What ``pace``
    waits does not count.
    """
    began = 0.0

    def timed() -> T:
        nonlocal began
        began = time.monotonic()
        return send()

    left = retry_for
    least = FIRST_WAIT
    while True:
        try:
            return pace(timed)
        except (ApiException, HTTPError) as error:
            wait = max(_retry_after(error), least) + random() * MAX_RANDOM
            left -= time.monotonic() - began + wait
            if left < 0 or not _is_transient(error):
                raise
        time.sleep(wait)
        least = min(2 * least, MAX_DOUBLED_WAIT)


def is_rate_limited(error: Exception) -> bool:
    return isinstance(error, ApiException) and error.status == 429


def _is_transient(error: Exception) -> bool:
    if isinstance(error, ApiException):
        return error.status in TRANSIENT_STATUSES
    if isinstance(error, ProxyError):
        return _is_transient(error.original_error)
    # A connection that broke during the handshake. Other errors of TLS, such as an untrusted certificate, are permanent.
    if isinstance(error, SSLError):
        return isinstance(error.args[0], ssl.SSLEOFError)
    return isinstance(error, (NewConnectionError, ProtocolError, OSError))


def _retry_after(error: Exception) -> float:
    """Parses Retry-After, seconds or a date (RFC 9110 section 10.2.3). Returns seconds, or 0 if it is neither."""
    value = (error.headers or {}).get("Retry-After", "") if isinstance(error, ApiException) else ""
    if value.isdecimal():
        return float(value)
    try:
        return (parsedate_to_datetime(value) - datetime.now(timezone.utc)).total_seconds()
    except (ValueError, TypeError):
        return 0.0
