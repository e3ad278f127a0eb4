"""Keeps requests within the rate limit, also if several processes share one key.

A process alone never exceeds the limit. One that shares it gets a 429 now and then, and each halves its pace; it regains it
page by page. Without that, a process that is refused would find all slots of every second taken by faster ones, for minutes.
"""

import time
from dataclasses import dataclass
from random import random
from threading import Lock
from typing import Any, Callable, List, TypeVar
from weakref import WeakKeyDictionary

from branded_phone_numbers_client.exceptions import ApiException
from branded_phone_numbers_client.retries import is_rate_limited

T = TypeVar("T")


@dataclass
class _Slot:
    free_at: float = float("inf")
    """When the slot becomes free; infinity while its request runs."""


class _Pace:
    """The pace of all walks with one client."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._slots: List[_Slot] = []
        # How much of the allowed requests per second this client takes.
        self._share = 1.0

    def run(self, per_second: int, send: Callable[[], T]) -> T:
        """Waits for a slot, then calls ``send``."""
        slot = self._take_slot(per_second)
        try:
            result = send()
            self._share = min(1.0, self._share + 0.02)
            return result
        except ApiException as error:
            if is_rate_limited(error):
                self._share = max(0.1, self._share / 2)
            raise
        finally:
            # Not one second after the request was sent: the service counts it when it arrives, which may be just before
            # the response. The random part leaves room for other processes.
            slot.free_at = time.monotonic() + 1 + random() * 0.1

    def _take_slot(self, per_second: int) -> _Slot:
        while True:
            with self._lock:
                now = time.monotonic()
                self._slots = [slot for slot in self._slots if slot.free_at > now]
                if len(self._slots) < max(1, int(per_second * self._share)):
                    slot = _Slot()
                    self._slots.append(slot)
                    return slot
                # It is unknown when running requests end, so check again soon.
                pause = min(0.05, *(slot.free_at - now for slot in self._slots))
            time.sleep(pause)


_paces: WeakKeyDictionary[Any, _Pace] = WeakKeyDictionary()
_lock = Lock()


def pace_of(api: Any) -> _Pace:
    """Returns the pace of ``api``."""
    with _lock:
        return _paces.setdefault(api, _Pace())
