"""Reads all pages within the rate limit, or one page if it has changed."""

import time
from copy import copy
from threading import Lock
from typing import Callable, Iterator, NamedTuple, Optional
from weakref import WeakKeyDictionary

from typing_extensions import Unpack

from branded_phone_numbers_client.api.branded_phone_numbers_api import BrandedPhoneNumbersApi
from branded_phone_numbers_client.exceptions import ApiException
from branded_phone_numbers_client.filters import ListBrandedPhoneNumbers
from branded_phone_numbers_client.models.branded_phone_number import BrandedPhoneNumber
from branded_phone_numbers_client.models.branded_phone_number_page import BrandedPhoneNumberPage
from branded_phone_numbers_client.retries import retrying


def each_number(
    api: BrandedPhoneNumbersApi,
    *,
    requests_per_second: int = 10,
    timeout: Optional[float] = None,
    **filters: Unpack[ListBrandedPhoneNumbers],
) -> Iterator[BrandedPhoneNumber]:
    """Yields every number that matches the filters, page after page.

    Waits and retries after a 429, 502, 503, 504 or a broken connection, and requests a page at most five times. The filters
    are those of ``api.list_branded_phone_numbers``. ``requests_per_second`` bounds the requests in any one second; all calls
    with the same ``api`` share it. The service allows 10 by default. ``timeout`` bounds each request in seconds, by default
    30.
    """
    once = copy(api)
    once.retry = False
    request: ListBrandedPhoneNumbers = {"size": 100, **filters}

    def send() -> BrandedPhoneNumberPage:
        release = _take_slot(api, requests_per_second)
        try:
            return once.list_branded_phone_numbers(**request, _request_timeout=timeout)
        finally:
            release()

    while True:
        page = retrying(send)
        yield from page.items
        if page.next_cursor is None:
            return
        request["next_cursor"] = page.next_cursor


class TaggedPage(NamedTuple):
    """A page, and the ``ETag`` that identifies this version of it."""

    page: BrandedPhoneNumberPage
    etag: Optional[str]
    """``None`` if a proxy has removed it."""


def page_if_changed(
    api: BrandedPhoneNumbersApi,
    etag: Optional[str],
    *,
    timeout: Optional[float] = None,
    **filters: Unpack[ListBrandedPhoneNumbers],
) -> Optional[TaggedPage]:
    """Returns a page with its ``etag``, or ``None`` if it has not changed since it had this ``etag`` (304 Not Modified).

    Without an ``etag``, always returns the page.
    """
    headers = {"If-None-Match": etag} if etag else {}
    try:
        response = api.list_branded_phone_numbers_with_http_info(**filters, _headers=headers, _request_timeout=timeout)
    except ApiException as error:
        if error.status == 304:
            return None
        raise
    return TaggedPage(response.data, (response.headers or {}).get("ETag"))


# For each client: the time at which each slot becomes free; infinity while a request uses it.
_slots: WeakKeyDictionary[BrandedPhoneNumbersApi, list[float]] = WeakKeyDictionary()
_lock = Lock()


def _take_slot(api: BrandedPhoneNumbersApi, per_second: int) -> Callable[[], None]:
    """Waits for a slot, takes it, and returns a function that frees it. Call that when the response has arrived.

    A slot becomes free one second after the response, not after the request was sent: the service counts a request when it
    arrives, which may be just before the response.
    """
    while True:
        with _lock:
            now = time.monotonic()
            free = _slots.setdefault(api, [])
            free.extend([now] * (per_second - len(free)))
            slot = next((slot for slot in range(per_second) if free[slot] <= now), None)
            if slot is not None:
                free[slot] = float("inf")
                break
            # It is unknown when running requests end, so check again soon.
            pause = min(0.05, *(at - now for at in free[:per_second]))
        time.sleep(pause)

    def release() -> None:
        free[slot] = time.monotonic() + 1

    return release
