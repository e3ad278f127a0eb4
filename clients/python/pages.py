"""Reads all pages within the rate limit, or one page if it has changed."""

from copy import copy
from functools import partial
from typing import Iterator, NamedTuple, Optional

from typing_extensions import Unpack

from branded_phone_numbers_client.api.branded_phone_numbers_api import BrandedPhoneNumbersApi
from branded_phone_numbers_client.exceptions import ApiException
from branded_phone_numbers_client.filters import ListBrandedPhoneNumbers
from branded_phone_numbers_client.models.branded_phone_number import BrandedPhoneNumber
from branded_phone_numbers_client.models.branded_phone_number_page import BrandedPhoneNumberPage
from branded_phone_numbers_client.pacing import pace_of


def each_page(
    api: BrandedPhoneNumbersApi,
    *,
    requests_per_second: int = 10,
    timeout: Optional[float] = None,
    **filters: Unpack[ListBrandedPhoneNumbers],
) -> Iterator[BrandedPhoneNumberPage]:
    """Yields every page of the numbers that match, from the first page or the one that ``next_cursor`` leads to.

    The ``next_cursor`` of a page leads to the page after it, so a walk that ended there is resumed with
    ``each_page(api, next_cursor=cursor, **filters)``.

    Each page is retried as any other call. The filters are those of ``api.list_branded_phone_numbers``.
    ``requests_per_second`` bounds the requests in any one second; all walks with the same ``api`` share it. The service
    allows 10 by default. ``timeout`` bounds each request in seconds, by default 30.
    """
    paced = copy(api)
    paced.pace = partial(pace_of(api).run, requests_per_second)
    request: ListBrandedPhoneNumbers = {"size": 100, **filters}
    sent = {request.get("next_cursor")}
    while True:
        response = paced.list_branded_phone_numbers_with_http_info(**request, _request_timeout=timeout)
        cursor = response.data.next_cursor
        # It leads back to a page that was read before: the walk would not end.
        if cursor is not None and cursor in sent:
            raise ApiException(
                response.status_code,
                headers=response.headers,
                body=response.raw_data.decode(),
                found=f"the nextCursor {cursor} repeats",
            )
        yield response.data
        if cursor is None:
            return
        sent.add(cursor)
        request["next_cursor"] = cursor


def each_number(
    api: BrandedPhoneNumbersApi,
    *,
    requests_per_second: int = 10,
    timeout: Optional[float] = None,
    **filters: Unpack[ListBrandedPhoneNumbers],
) -> Iterator[BrandedPhoneNumber]:
    """Yields every number that matches the filters, page after page. The parameters are those of ``each_page``."""
    for page in each_page(api, requests_per_second=requests_per_second, timeout=timeout, **filters):
        yield from page.items


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
