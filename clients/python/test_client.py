"""Tests the installed wheel against a running service."""

import asyncio
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from threading import Event, Thread, active_count
from typing import Any
from urllib.request import urlopen
from uuid import uuid4

import pytest
from branded_phone_numbers_client import (
    ApiClient,
    ApiException,
    BrandedPhoneNumber,
    BrandedPhoneNumberPage,
    BrandedPhoneNumbersApi,
    Configuration,
    DetailedStatus,
    Feature,
    Status,
    StatusFilter,
)
from branded_phone_numbers_client.pages import each_number, each_page, page_if_changed
from urllib3.exceptions import HTTPError, ProxyError, SSLError, TimeoutError

SERVICE_URL = os.environ["SERVICE_URL"]
LIMITED_URL = os.environ["LIMITED_URL"]
KEYED_URL = os.environ["KEYED_URL"]
API_KEY = os.environ["API_KEY"]
GROWN_URL = os.environ["GROWN_URL"]
FAILING_URL = os.environ["FAILING_URL"]
UNTRUSTED_URL = os.environ["UNTRUSTED_URL"]
UNTRUSTED_COUNT_URL = os.environ["UNTRUSTED_COUNT_URL"]
MALFORMED = os.environ["MALFORMED"].split(" ")
SHAPES = json.loads(Path(os.environ["SHAPES"]).read_text())
ALL = [f"+1415555{i:04}" for i in range(240)]
CREATED = datetime(2026, 2, 3, 16, 49, 2, 748000, tzinfo=timezone.utc)


def client(host: str, retry_for: float = 60) -> BrandedPhoneNumbersApi:
    return BrandedPhoneNumbersApi(ApiClient(Configuration(host=host)), retry_for=retry_for)


api = client(SERVICE_URL)


def snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def walk(**filters: Any) -> Iterator[BrandedPhoneNumber]:
    """Returns the numbers of all pages, requested without the helper, with the largest page size."""
    page = api.list_branded_phone_numbers(size=100, **filters)
    yield from page.items
    while page.next_cursor is not None:
        page = api.list_branded_phone_numbers(size=100, next_cursor=page.next_cursor, **filters)
        yield from page.items


@pytest.mark.parametrize("shape", SHAPES, ids=[shape["title"] for shape in SHAPES])
def test_lists_the_right_numbers(shape: dict[str, Any]) -> None:
    numbers = [item.phone_number for item in walk(**{snake(k): v for k, v in shape["arguments"].items()})]
    assert len(numbers) == shape["count"]
    with urlopen(f"{SERVICE_URL}/v1/brandedPhoneNumbers?size=100&{shape['query']}") as response:
        first = json.load(response)
    assert numbers[:100] == [item["phoneNumber"] for item in first["items"]]


def test_sends_an_empty_list_as_no_filter() -> None:
    assert len(list(walk(carrier=[], status=[], feature=[]))) == 240


def test_reads_times_as_datetimes_and_null_as_none() -> None:
    page = api.list_branded_phone_numbers(phone_number="+14155550003")
    assert page.next_cursor is None
    [number] = page.items
    assert number.created_at == CREATED
    assert number.carrier_statuses[0].created_at == CREATED
    assert (number.internal_name, number.branding_name_short, number.branding_name_long) == (None, "Café & Co", None)


def test_has_the_known_values_as_they_are_in_a_page() -> None:
    [number] = api.list_branded_phone_numbers(phone_number="+14155550001").items
    assert number.status == Status.REJECTED
    assert number.carrier_statuses[0].feature == Feature.BRANDEDCALLERID
    assert number.carrier_statuses[0].detailed_status == DetailedStatus.REJECTED_DOT_OPT_IN


def test_writes_a_page_as_the_service_sends_it() -> None:
    with urlopen(f"{SERVICE_URL}/v1/brandedPhoneNumbers?size=100") as response:
        sent = response.read().decode()
    assert '"2026-02-03T16:49:02.800Z"' in sent and '"2026-02-03T16:49:02.000Z"' in sent
    page = api.list_branded_phone_numbers(size=100)
    page.items[0].created_at = page.items[0].created_at.astimezone(timezone(timedelta(hours=1)))
    assert json.loads(page.to_json()) == json.loads(sent)
    assert BrandedPhoneNumberPage.from_json(page.to_json()) == page
    assert '"createdAt":"2026-02-03T16:49:02.800Z"' in page.model_dump_json(by_alias=True)


def test_asks_for_compressed_responses_and_names_itself_after_the_program() -> None:
    day = FailingUrl("ok")
    assert len(day.api.list_branded_phone_numbers(size=100).items) == 100
    own = day.api.api_client.user_agent
    assert re.fullmatch(r"branded-phone-numbers-client/\d+\.\d+\.\d+ \(Python\)", own)
    day.api.api_client.user_agent = "acme-sync/2.0 " + own
    day.api.list_branded_phone_numbers()
    first, second = day.requests()
    assert first["bytes"] < 10_000
    assert [first["headers"]["user-agent"], second["headers"]["user-agent"]] == [own, f"acme-sync/2.0 {own}"]


def test_uses_the_proxy_of_the_environment_or_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    host = "http://numbers.invalid/python/ok"
    configured = Configuration(host=host, proxy=FAILING_URL)
    assert len(BrandedPhoneNumbersApi(ApiClient(configured)).list_branded_phone_numbers(size=1).items) == 1
    monkeypatch.setenv("HTTP_PROXY", FAILING_URL)
    assert len(client(host).list_branded_phone_numbers(size=1).items) == 1


def test_logs_each_attempt(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", "urllib3"):
        list(each_number(FailingUrl("503").api))
    assert [message.split()[-2] for message in caplog.messages if "GET" in message] == ["503", "200", "200", "200"]


def test_raises_an_error_with_the_problem_if_the_request_is_rejected() -> None:
    with pytest.raises(ApiException) as raised:
        api.list_branded_phone_numbers(next_cursor="damaged")
    assert raised.value.status == 400
    problem = raised.value.problem
    assert problem is not None and problem.type == "/problems/invalid-cursor"
    assert str(raised.value) == f"400 Invalid Cursor: {problem.detail}"
    assert raised.value.headers is not None
    assert raised.value.request_id == raised.value.headers["X-Request-Id"]


def test_raises_an_error_with_the_content_type_if_a_proxy_responds() -> None:
    with pytest.raises(ApiException) as raised:
        client(f"{FAILING_URL}/python/html", retry_for=0).list_branded_phone_numbers()
    assert str(raised.value) == "502 Unexpected Response: text/html instead of application/problem+json"
    assert raised.value.problem is None and raised.value.request_id is None
    assert raised.value.body is not None and "Bad Gateway" in raised.value.body


@pytest.mark.parametrize("step, start", [("login", "<h1>Log in</h1>" + 85 * "."), ("other", '{"ok":true}')])
def test_raises_an_error_with_the_beginning_of_a_200_that_is_not_a_page(step: str, start: str) -> None:
    with pytest.raises(ApiException) as raised:
        client(f"{FAILING_URL}/python/{step}").list_branded_phone_numbers()
    assert str(raised.value) == f"200 Unexpected Response: not a page of numbers: {start}"


@pytest.mark.parametrize("step", MALFORMED)
def test_rejects_a_page_that(step: str) -> None:
    with pytest.raises(ApiException, match="^200 Unexpected Response: not a page of numbers: "):
        client(f"{FAILING_URL}/python/{step}").list_branded_phone_numbers()


def test_follows_no_redirect_and_says_where_it_leads_to() -> None:
    day = FailingUrl("moved*")
    with pytest.raises(ApiException) as raised:
        list(each_number(day.api))
    found = f"redirected to {SERVICE_URL}: set that as the base URL"
    assert str(raised.value) == f"308 Unexpected Response: {found}"
    assert len(day.requests()) == 1


@pytest.mark.parametrize("url", ["localhost:3000", "numbers.example.com"])
def test_raises_at_once_if_the_base_url_has_no_scheme(url: str) -> None:
    with pytest.raises(ValueError, match=f"must begin with http:// or https://, unlike {url}"):
        list(each_number(client(url)))


@pytest.mark.parametrize(
    "configuration",
    [Configuration(host=UNTRUSTED_URL), Configuration(host="http://numbers.invalid", proxy=UNTRUSTED_URL)],
    ids=["the service", "a proxy"],
)
def test_raises_at_once_if_it_does_not_trust_the_certificate_of(configuration: Configuration) -> None:
    def connections() -> int:
        with urlopen(UNTRUSTED_COUNT_URL) as response:
            return int(response.read())

    before = connections()
    with pytest.raises((SSLError, ProxyError), match="CERTIFICATE_VERIFY_FAILED"):
        list(each_number(BrandedPhoneNumbersApi(ApiClient(configuration))))
    assert connections() == before + 1


def test_retries_after_a_connection_that_breaks_in_the_tls_handshake() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepted = []

        def refuse() -> None:
            for _ in range(2):
                connection = server.accept()[0]
                accepted.append(connection.recv(1))
                connection.shutdown(socket.SHUT_WR)
                connection.close()
            server.close()

        Thread(target=refuse).start()
        with pytest.raises(HTTPError):
            list(each_number(client(f"https://127.0.0.1:{server.getsockname()[1]}", retry_for=6)))
        assert len(accepted) == 2


def test_a_time_limit_bounds_the_search_for_the_address_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    searching = Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: searching.wait(60))
    with pytest.raises(TimeoutError, match="no complete response within 0.3 seconds"):
        client("http://numbers.invalid").list_branded_phone_numbers(_request_timeout=0.3)
    searching.set()


def test_accepts_a_base_url_that_ends_with_a_slash() -> None:
    for url in (f"{SERVICE_URL}/", f"{FAILING_URL}/python/ok/"):
        assert len(client(url).list_branded_phone_numbers(size=1).items) == 1


def test_sends_a_key() -> None:
    for configuration in (
        Configuration(host=KEYED_URL, access_token=API_KEY),
        Configuration(host=KEYED_URL, api_key={"apiKey": API_KEY}),
        Configuration(host=KEYED_URL, api_key={"apiKey": API_KEY}, api_key_prefix={"apiKey": "Bearer"}),
    ):
        assert len(BrandedPhoneNumbersApi(ApiClient(configuration)).list_branded_phone_numbers().items) == 25
    with pytest.raises(ApiException, match="^401 Unauthorized: "):
        client(KEYED_URL).list_branded_phone_numbers()


def test_retries_in_every_call_unless_retries_are_turned_off() -> None:
    day = FailingUrl("503", "break", "ok", "429-1")
    by_default = BrandedPhoneNumbersApi(day.api.api_client)
    assert len(by_default.list_branded_phone_numbers().items) == 25
    held = page_if_changed(by_default, None)
    assert held is not None and len(held.page.items) == 25
    once = client(FailingUrl("503", "ok", "break", "429").url, retry_for=0)
    with pytest.raises(ApiException, match="^503 Unavailable: Try again.$"):
        once.list_branded_phone_numbers()
    assert page_if_changed(once, None) is not None
    with pytest.raises(HTTPError):
        page_if_changed(once, None)
    with pytest.raises(ApiException, match="^429 "):
        list(each_number(once))


@pytest.mark.parametrize("steps", ["503,429-20*", "late*"])
def test_gives_up_when_a_retry_would_exceed_its_time(steps: str) -> None:
    day = FailingUrl(steps)
    with pytest.raises(ApiException, match="Unavailable: Try again.$"):
        client(day.url, retry_for=6).list_branded_phone_numbers()
    assert len(day.waits()) == 1


def test_works_with_asyncio() -> None:
    async def ask() -> list[str]:
        numbers = [f"+1415555{i:04}" for i in range(8)]
        pages = [asyncio.to_thread(api.list_branded_phone_numbers, phone_number=number) for number in numbers]
        return [item.phone_number for page in await asyncio.gather(*pages) for item in page.items]

    async def walk() -> list[str]:
        return [number.phone_number for number in await asyncio.to_thread(lambda: list(each_number(api)))]

    assert asyncio.run(ask()) == ALL[:8]
    assert asyncio.run(walk()) == ALL


@pytest.mark.parametrize("name", ["etag", "Etag", "ETag"])
def test_finds_headers_in_any_case(name: str) -> None:
    response = client(f"{FAILING_URL}/python/{name}").list_branded_phone_numbers_with_http_info()
    assert response.headers is not None
    assert response.headers["ETag"] == response.headers["etag"] == response.headers.get("Etag")
    with pytest.raises(ApiException) as raised:
        client(f"{FAILING_URL}/python/{name},503-1*", retry_for=0).list_branded_phone_numbers()
    assert raised.value.headers is not None and raised.value.headers["Retry-After"] == "1"


@pytest.mark.parametrize("name", ["etag", "Etag", "ETag"])
def test_page_if_changed_returns_a_page_with_its_etag_and_none_if_it_has_not_changed(name: str) -> None:
    proxied = client(f"{FAILING_URL}/python/{name}")
    held = page_if_changed(proxied, None, size=2)
    assert held is not None and [number.phone_number for number in held.page.items] == ALL[:2]
    assert page_if_changed(proxied, held.etag, size=2) is None
    newer = page_if_changed(proxied, held.etag, size=3)
    assert newer is not None and len(newer.page.items) == 3
    with pytest.raises(ApiException, match="^400 Invalid Cursor: "):
        page_if_changed(proxied, held.etag, next_cursor="damaged")


@pytest.mark.parametrize("step", ["silent", "stall", "trickle", "drip"])
def test_times_out(step: str) -> None:
    started = time.monotonic()
    threads = active_count()
    with pytest.raises(TimeoutError):
        client(f"{FAILING_URL}/python/{step}").list_branded_phone_numbers(_request_timeout=0.3)
    assert time.monotonic() - started < 5
    # Nor does it leave a thread behind that reads on.
    while active_count() > threads:
        assert time.monotonic() - started < 20
        time.sleep(0.05)


def test_accepts_literals_and_tuples_for_a_list_of_values() -> None:
    literal = api.list_branded_phone_numbers(status=["approved"], feature=("brandedCallerId",))
    assert literal == api.list_branded_phone_numbers(status=[StatusFilter.APPROVED], feature=[Feature.BRANDEDCALLERID])


def test_raises_a_429_with_retry_after() -> None:
    day = FailingUrl("429-1")
    with pytest.raises(ApiException) as raised:
        client(day.url, retry_for=0).list_branded_phone_numbers()
    assert raised.value.status == 429
    assert raised.value.headers is not None and raised.value.headers["Retry-After"] == "1"
    assert raised.value.problem is not None and raised.value.problem.message == "Unavailable"
    assert len(day.requests()) == 1


def test_accepts_new_members_and_values() -> None:
    [number] = client(GROWN_URL).list_branded_phone_numbers(phone_number="+14155550001").items
    assert number.status == "on hold"
    assert number.carrier_statuses[0].feature == "voicemailGreeting"
    assert number.carrier_statuses[0].detailed_status == "expired.optIn"
    assert number.additional_properties["region"] == {"code": "us-1", "zones": [1, 2]}


def observed(monkeypatch: pytest.MonkeyPatch) -> tuple[BrandedPhoneNumbersApi, list[float], list[int]]:
    """Returns a client of the service with a rate limit, and lists that record the time and the status of each request."""
    limited, times, statuses = client(LIMITED_URL), [], []
    send: Callable[..., Any] = limited.api_client.rest_client.request

    def request(*arguments: Any, **options: Any) -> Any:
        times.append(time.monotonic())
        response = send(*arguments, **options)
        statuses.append(response.status)
        return response

    monkeypatch.setattr(limited.api_client.rest_client, "request", request)
    return limited, times, statuses


def test_each_number_yields_every_number_once_in_order_over_all_pages() -> None:
    assert [number.phone_number for number in each_number(api, size=7, requests_per_second=1000)] == ALL


def test_each_number_keeps_the_filters_on_every_page() -> None:
    assert len(list(each_number(api, size=9, carrier=["AT&T"], status=["approved"]))) == 56


def test_each_number_sends_at_most_ten_requests_per_second_and_is_never_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time.sleep(1.1)
    limited, times, statuses = observed(monkeypatch)
    assert [number.phone_number for number in each_number(limited, size=10)] == ALL
    assert statuses == [200] * 24
    assert all(sum(at <= other < at + 1 for other in times) <= 10 for at in times)


def test_each_number_keeps_the_given_pace() -> None:
    day = FailingUrl("ok")
    assert [number.phone_number for number in each_number(day.api, size=20, requests_per_second=4)] == ALL
    times = [request["at"] for request in day.requests()]
    assert all(later - earlier > 990 for earlier, later in zip(times, times[4:]))


def test_each_number_raises_any_other_error() -> None:
    with pytest.raises(ApiException) as raised:
        list(each_number(api, next_cursor="damaged"))
    assert raised.value.status == 400


class FailingUrl:
    """A base URL of the failing proxy (clients/live/failing.ts)."""

    def __init__(self, *steps: str) -> None:
        self.url = f"{FAILING_URL}/python-{uuid4()}/{','.join(steps)}"
        self.api = client(self.url)

    def requests(self) -> list[dict[str, Any]]:
        """Returns when each request arrived, its headers, and the size of the response."""
        with urlopen(f"{self.url}/requests") as response:
            requests: list[dict[str, Any]] = json.load(response)
        return requests

    def waits(self) -> list[float]:
        """Returns the seconds between the requests to this URL."""
        times = [request["at"] for request in self.requests()]
        return [(later - earlier) / 1000 for earlier, later in zip(times, times[1:])]


def test_each_number_retries_each_page_after_waits_that_double_up_to_eight_seconds_each_with_a_random_part() -> None:
    day = FailingUrl("etag", "break", "503", "429-1", "html", "half", "504", "ok", "503")
    assert [number.phone_number for number in each_number(day.api)] == ALL
    *first_page, _, second_page, _ = day.waits()
    assert all(wait > least - 0.01 for wait, least in zip(first_page, (0.5, 1, 2, 4, 8, 8), strict=True))
    assert sum(first_page) > 23.75
    assert first_page[5] < 15
    assert second_page < 7.9


def test_each_page_does_not_count_what_it_waits_for_its_pace_in_the_time_of_retries() -> None:
    paced = client(FailingUrl("ok", "ok", "ok", "503").url, retry_for=2)
    with ThreadPoolExecutor(4) as walks:
        pages = [walks.submit(lambda: next(each_page(paced, requests_per_second=1))) for _ in range(4)]
        assert [len(page.result().items) for page in pages] == [100] * 4


def test_each_number_waits_until_the_date_or_so_many_seconds_in_retry_after() -> None:
    day = FailingUrl("503-date", "503-2", "503-")
    assert [number.phone_number for number in each_number(day.api)] == ALL
    assert all(wait > least for wait, least in zip(day.waits(), (0.99, 1.99, 1.99)))


def test_twelve_programs_that_share_one_rate_limit_finish() -> None:
    walks: list[list[str]] = [[] for _ in range(12)]
    threads = [
        Thread(target=lambda walk=walk: walk.extend(n.phone_number for n in each_number(client(LIMITED_URL), size=20)))
        for walk in walks
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert walks == [ALL] * 12


def test_each_number_slows_down_with_each_429_and_regains_its_pace_page_by_page() -> None:
    day = FailingUrl("size=30", "429", "429", "429")
    assert [number.phone_number for number in each_number(day.api)] == ALL
    waits = day.waits()
    # An eighth of ten requests per second, and a fiftieth more after each page.
    assert min(waits[2:6]) >= 0.99
    assert min(waits[6:]) < 0.9


def test_each_page_resumes_after_the_page_that_had_a_cursor() -> None:
    first = next(each_page(api, carrier=["AT&T"]))
    rest = list(each_page(api, carrier=["AT&T"], next_cursor=first.next_cursor))
    assert [len(page.items) for page in (first, *rest)] == [100, 100]


@pytest.mark.parametrize("steps, count", [("cursor-a*", 1), ("cursor-a,cursor-b,cursor-c,cursor-a*", 3)])
def test_each_page_raises_if_a_cursor_repeats(steps: str, count: int) -> None:
    pages = []
    with pytest.raises(ApiException) as raised:
        for page in each_page(FailingUrl(steps).api):
            pages.append(page)
    assert str(raised.value) == "200 Unexpected Response: the nextCursor a repeats"
    assert raised.value.status == 200 and raised.value.headers is not None
    assert len(pages) == count


@pytest.mark.parametrize("step", ["500", "login", "silent"])
def test_each_number_raises_permanent_errors_at_once(step: str) -> None:
    day = FailingUrl(step)
    with pytest.raises((ApiException, TimeoutError)):
        list(each_number(day.api, timeout=0.3))
    assert day.waits() == []
