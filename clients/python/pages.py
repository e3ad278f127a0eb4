"""All pages as one walk, at the pace that the service allows."""

import time
from threading import Lock
from typing import Any, Callable, Iterator
from weakref import WeakKeyDictionary

from branded_phone_numbers_client.api.branded_phone_numbers_api import BrandedPhoneNumbersApi
from branded_phone_numbers_client.exceptions import ApiException
from branded_phone_numbers_client.models.branded_phone_number import BrandedPhoneNumber
from branded_phone_numbers_client.models.branded_phone_number_page import BrandedPhoneNumberPage


def each_number(
    api: BrandedPhoneNumbersApi, *, requests_per_second: int = 10, **filters: Any
) -> Iterator[BrandedPhoneNumber]:
    """Every number that matches the filters, page after page, waiting where the rate limit asks for it.

    The filters are those of ``api.list_branded_phone_numbers``. Walks over the same ``api`` share
    ``requests_per_second``, the most requests in any one second; the service allows 10.
    """
    filters = {"size": 100, **filters}
    while True:
        page = _ask(api, requests_per_second, filters)
        yield from page.items
        if page.next_cursor is None:
            return
        filters["next_cursor"] = page.next_cursor


def _ask(api: BrandedPhoneNumbersApi, per_second: int, filters: dict[str, Any]) -> BrandedPhoneNumberPage:
    while True:
        release = _take_turn(api, per_second)
        try:
            return api.list_branded_phone_numbers(**filters)
        except ApiException as error:
            if error.status != 429:
                raise
            seconds = (error.headers or {}).get("Retry-After", "")
            time.sleep(int(seconds) if seconds.isdigit() else 1)
        finally:
            release()


# For each client: when each of the turns that a second holds is free again.
_turns: WeakKeyDictionary[BrandedPhoneNumbersApi, list[float]] = WeakKeyDictionary()
_lock = Lock()


def _take_turn(api: BrandedPhoneNumbersApi, per_second: int) -> Callable[[], None]:
    """Waits for a turn and takes it; call what it returns when the answer is there.

    A turn is free again a second after its answer, not after its sending: the service counts when a request arrives,
    and that may be as late as the answer.
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
