"""All pages as one walk, at the pace that the service allows."""

import time
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from threading import Lock
from typing import Callable, Iterator, Optional
from weakref import WeakKeyDictionary

from typing_extensions import Unpack
from urllib3.exceptions import NewConnectionError, ProtocolError, ProxyError

from branded_phone_numbers_client.api.branded_phone_numbers_api import BrandedPhoneNumbersApi
from branded_phone_numbers_client.exceptions import ApiException
from branded_phone_numbers_client.filters import ListBrandedPhoneNumbers
from branded_phone_numbers_client.models.branded_phone_number import BrandedPhoneNumber
from branded_phone_numbers_client.models.branded_phone_number_page import BrandedPhoneNumberPage

TRIES = 5
"""How many times a page is requested before its error is raised."""
LONGEST_WAIT = 60.0


def each_number(
    api: BrandedPhoneNumbersApi,
    *,
    requests_per_second: int = 10,
    timeout: Optional[float] = None,
    **filters: Unpack[ListBrandedPhoneNumbers],
) -> Iterator[BrandedPhoneNumber]:
    """Every number that matches the filters, page after page.

    After a 429, a 503 or a broken connection it waits and tries again; a page is requested at most five times. The
    filters are those of ``api.list_branded_phone_numbers``. Walks over the same ``api`` share ``requests_per_second``,
    the most requests in any one second; the service allows 10. A request takes at most ``timeout`` seconds, by default 30.
    """
    request: ListBrandedPhoneNumbers = {"size": 100, **filters}
    while True:
        page = _ask(api, requests_per_second, timeout, request)
        yield from page.items
        if page.next_cursor is None:
            return
        request["next_cursor"] = page.next_cursor


def _ask(
    api: BrandedPhoneNumbersApi, per_second: int, timeout: Optional[float], request: ListBrandedPhoneNumbers
) -> BrandedPhoneNumberPage:
    attempt = 1
    while True:
        wait: Optional[float] = None
        release = _take_turn(api, per_second)
        try:
            return api.list_branded_phone_numbers(**request, _request_timeout=timeout)
        except ApiException as error:
            if attempt == TRIES or error.status not in (429, 503):
                raise
            wait = _retry_after(error)
        except (NewConnectionError, ProtocolError, ProxyError):
            if attempt == TRIES:
                raise
        finally:
            release()
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


# For each client: when each of the turns that a second holds is free again.
_turns: WeakKeyDictionary[BrandedPhoneNumbersApi, list[float]] = WeakKeyDictionary()
_lock = Lock()


def _take_turn(api: BrandedPhoneNumbersApi, per_second: int) -> Callable[[], None]:
    """Waits for a turn and takes it; call what it returns when the answer is there.

    A turn is free again a second after the answer, not after the request was sent: the service counts when a request
    arrives, and that may be as late as the answer.
    """
    while True:
        with _lock:
            now = time.monotonic()
            free = _turns.setdefault(api, [])
            free.extend([now] * (per_second - len(free)))
            turn = next((turn for turn in range(per_second) if free[turn] <= now), None)
            if turn is not None:
                free[turn] = float("inf")
                break
            # Turns under way have no time yet; look again soon.
            pause = min(0.05, *(at - now for at in free[:per_second]))
        time.sleep(pause)

    def release() -> None:
        free[turn] = time.monotonic() + 1

    return release
