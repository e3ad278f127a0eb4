"""Retries requests after transient failures."""

import time
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Callable, Optional, TypeVar

from urllib3.exceptions import NewConnectionError, ProtocolError, ProxyError

from branded_phone_numbers_client.exceptions import ApiException

T = TypeVar("T")

MAX_ATTEMPTS = 5
"""How often a request is sent before its error is raised."""
MAX_WAIT = 60.0
"""The longest wait before a retry, in seconds."""
TRANSIENT_STATUSES = (429, 502, 503, 504)


def retrying(send: Callable[[], T]) -> T:
    """Calls ``send``, and retries after a 429, 502, 503, 504 or a broken connection. Calls it at most five times."""
    attempt = 1
    while True:
        wait: Optional[float] = None
        try:
            return send()
        except ApiException as error:
            if attempt == MAX_ATTEMPTS or error.status not in TRANSIENT_STATUSES:
                raise
            wait = _retry_after(error)
        except (NewConnectionError, ProtocolError, ProxyError):
            if attempt == MAX_ATTEMPTS:
                raise
        time.sleep(min(0.5 * 2.0 ** (attempt - 1) if wait is None else wait, MAX_WAIT))
        attempt += 1


def _retry_after(error: ApiException) -> Optional[float]:
    """Parses Retry-After, seconds or a date (RFC 9110 section 10.2.3). Returns seconds, or ``None`` if it is neither."""
    value = (error.headers or {}).get("Retry-After", "")
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(timezone.utc)).total_seconds())
    except (ValueError, TypeError):
        return None
