"""Retries requests after transient failures."""

import ssl
import time
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from random import random
from typing import Callable, Optional, TypeVar

from urllib3.exceptions import HTTPError, NewConnectionError, ProtocolError, ProxyError, SSLError

from branded_phone_numbers_client.exceptions import ApiException

T = TypeVar("T")

MAX_FAILURES = 5
"""How often a request may fail before its error is raised. Refusals by the rate limit do not count."""
MAX_WAIT = 60.0
"""The longest wait before a retry, and by default the total of a call's waits, in seconds."""
MAX_RANDOM = 0.5
"""A random part of each wait in seconds, so that processes with the same key do not all retry at the same time."""
TRANSIENT_STATUSES = (502, 503, 504)


def retrying(send: Callable[[], T], budget: float) -> T:
    """Calls ``send``, and retries after a 429, 502, 503, 504 or a broken connection.

    It waits ``budget`` seconds in total, and gives up after five failures other than a 429.
    """
    failures = 0
    left = budget
    while True:
        try:
            return send()
        except (ApiException, HTTPError) as error:
            after = _retry_after(error)
            wait = min(0.5 * 2.0**failures if after is None else after, MAX_WAIT) + random() * MAX_RANDOM
            if not is_rate_limited(error):
                failures += 1
                if failures == MAX_FAILURES or not _is_transient(error):
                    raise
            if left <= 0:
                raise
        time.sleep(min(wait, left))
        left -= wait


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


def _retry_after(error: Exception) -> Optional[float]:
    """Parses Retry-After, seconds or a date (RFC 9110 section 10.2.3). Returns seconds, or ``None`` if it is neither."""
    value = (error.headers or {}).get("Retry-After", "") if isinstance(error, ApiException) else ""
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(timezone.utc)).total_seconds())
    except (ValueError, TypeError):
        return None
