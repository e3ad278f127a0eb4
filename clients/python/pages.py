"""Pages: all of them as one walk, at the pace that the service allows; and one, if it has changed."""

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
    """Every number that matches the filters, page after page.

    After a 429, 502, 503, 504 or a broken connection it waits and tries again; a page is requested at most five times.
    The filters are those of ``api.list_branded_phone_numbers``. Walks over the same ``api`` share
    ``requests_per_second``, the most requests in any one second; the service allows 10. A request takes at most
    ``timeout`` seconds, by default 30.
    """
    once = copy(api)
    once.retry = False
    request: ListBrandedPhoneNumbers = {"size": 100, **filters}

    def send() -> BrandedPhoneNumberPage:
        release = _take_turn(api, requests_per_second)
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
    """A page with its ``etag``; or ``None`` if it is still the one with this ``etag`` ("304 Not Modified").

    Without an ``etag`` it is always the page.
    """
    headers = {"If-None-Match": etag} if etag else {}
    try:
        response = api.list_branded_phone_numbers_with_http_info(**filters, _headers=headers, _request_timeout=timeout)
    except ApiException as error:
        if error.status == 304:
            return None
        raise
    return TaggedPage(response.data, (response.headers or {}).get("ETag"))


# For each client: when each of the turns that a second holds is free again.
_turns: WeakKeyDictionary[BrandedPhoneNumbersApi, list[float]] = WeakKeyDictionary()
_lock = Lock()


def _take_turn(api: BrandedPhoneNumbersApi, per_second: int) -> Callable[[], None]:
    """Waits for a turn and takes it; call what it returns when the response is there.

    A turn is free again a second after the response, not after the request was sent: the service counts when a request
    arrives, and that may be as late as the response.
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
