"""Tests the client that openapi-python-client generates from the contract against a running service."""

import os

from branded_phone_numbers_client import Client
from branded_phone_numbers_client.api.branded_phone_numbers.list_branded_phone_numbers import sync_detailed
from branded_phone_numbers_client.models import BrandedPhoneNumberPage, Problem, StatusOrDetailedStatus

SERVICE_URL = os.environ["SERVICE_URL"]
FAILING_URL = os.environ["FAILING_URL"]
GROWN_URL = os.environ["GROWN_URL"]


def walk(**filters: object) -> list[str]:
    """Returns the numbers of all pages."""
    client, numbers = Client(base_url=SERVICE_URL), []
    while True:
        page = sync_detailed(client=client, size=50, **filters).parsed
        assert isinstance(page, BrandedPhoneNumberPage)
        numbers += [item.phone_number for item in page.items]
        if page.next_cursor is None:
            return numbers
        filters["next_cursor"] = page.next_cursor


def test_reads_all_pages() -> None:
    assert walk() == [f"+1415555{i:04}" for i in range(240)]


def test_encodes_and_repeats_parameters() -> None:
    assert walk(phone_number="+14155550007") == ["+14155550007"]
    assert len(walk(carrier=["AT&T"], status=[StatusOrDetailedStatus.APPROVED])) == 56
    assert len(walk(internal_name=["Billing & Payments", "A+B, 100%"])) == 120
    assert len(walk(status=[StatusOrDetailedStatus.SUBMITTED_FOR_REVIEW])) == 80


def test_reads_every_fault_of_a_rejected_request() -> None:
    response = sync_detailed(client=Client(base_url=SERVICE_URL), size=0, phone_number="14155550007")
    assert response.status_code == 400
    assert isinstance(response.parsed, Problem)
    assert sorted(fault.parameter for fault in response.parsed.errors) == ["phoneNumber", "size"]


def test_sends_the_etag_of_a_page_and_reads_that_the_page_has_not_changed() -> None:
    client = Client(base_url=SERVICE_URL)
    etag = sync_detailed(client=client).headers["ETag"]
    assert sync_detailed(client=client, if_none_match=etag).status_code == 304


def test_reads_a_429_and_its_retry_after() -> None:
    refused = sync_detailed(client=Client(base_url=f"{FAILING_URL}/openapi-python-client/429-1"))
    assert refused.status_code == 429
    assert refused.parsed.message == "Unavailable"
    assert refused.headers["Retry-After"] == "1"


def test_accepts_new_members_and_values() -> None:
    page = sync_detailed(client=Client(base_url=GROWN_URL), phone_number="+14155550001").parsed
    [number] = page.items
    assert number.status == "on hold"
    assert number.carrier_statuses[0].feature == "voicemailGreeting"
    assert number.carrier_statuses[0].detailed_status == "expired.optIn"
