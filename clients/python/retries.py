"""Requests that are sent again when they fail for a reason that passes."""

import time
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Callable, Optional, TypeVar

from urllib3.exceptions import NewConnectionError, ProtocolError, ProxyError

from branded_phone_numbers_client.exceptions import ApiException

T = TypeVar("T")

TRIES = 5
"""How many times a request is sent before its error is raised."""
LONGEST_WAIT = 60.0
PASSING = (429, 502, 503, 504)


def retrying(send: Callable[[], T]) -> T:
    """Calls ``send``, up to five times while it fails with a 429, 502, 503, 504 or a broken connection."""
    attempt = 1
    while True:
        wait: Optional[float] = None
        try:
            return send()
        except ApiException as error:
            if attempt == TRIES or error.status not in PASSING:
                raise
            wait = _retry_after(error)
        except (NewConnectionError, ProtocolError, ProxyError):
            if attempt == TRIES:
                raise
        time.sleep(min(0.5 * 2.0 ** (attempt - 1) if wait is None else wait, LONGEST_WAIT))
        attempt += 1


def _retry_after(error: ApiException) -> Optional[float]:
    """Seconds, given as such or as a date (RFC 9110 section 10.2.3)."""
    value = (error.headers or {}).get("Retry-After", "")
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(timezone.utc)).total_seconds())
    except (ValueError, TypeError):
        return None
