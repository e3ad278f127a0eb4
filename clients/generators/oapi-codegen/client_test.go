// Tests the client that oapi-codegen generates from the contract against a running service.
package client

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
)

func list(t *testing.T, url string, params ListBrandedPhoneNumbersParams) *ListBrandedPhoneNumbersResponse {
	t.Helper()
	client, err := NewClientWithResponses(url)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.ListBrandedPhoneNumbersWithResponse(context.Background(), &params)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// walk returns the numbers of all pages.
func walk(t *testing.T, params ListBrandedPhoneNumbersParams) []string {
	t.Helper()
	size, numbers := int32(50), []string{}
	params.Size = &size
	for {
		page := list(t, os.Getenv("SERVICE_URL"), params).JSON200
		if page == nil {
			t.Fatal("the response is no page")
		}
		for _, item := range page.Items {
			numbers = append(numbers, item.PhoneNumber)
		}
		if page.NextCursor == nil {
			return numbers
		}
		params.NextCursor = page.NextCursor
	}
}

func TestReadsAllPages(t *testing.T) {
	all := make([]string, 240)
	for i := range all {
		all[i] = fmt.Sprintf("+1415555%04d", i)
	}
	if numbers := walk(t, ListBrandedPhoneNumbersParams{}); !slices.Equal(numbers, all) {
		t.Errorf("listed %v", numbers)
	}
}

func TestSendsTheETagOfAPageAndReadsThatThePageHasNotChanged(t *testing.T) {
	etag := list(t, os.Getenv("SERVICE_URL"), ListBrandedPhoneNumbersParams{}).HTTPResponse.Header.Get("ETag")
	held := list(t, os.Getenv("SERVICE_URL"), ListBrandedPhoneNumbersParams{IfNoneMatch: &etag})
	if held.StatusCode() != 304 {
		t.Errorf("the status is %d", held.StatusCode())
	}
}

func TestEncodesAndRepeatsParameters(t *testing.T) {
	phone := "+14155550007"
	for _, test := range []struct {
		params ListBrandedPhoneNumbersParams
		count  int
	}{
		{ListBrandedPhoneNumbersParams{PhoneNumber: &phone}, 1},
		{ListBrandedPhoneNumbersParams{Carrier: &[]string{"AT&T"}, Status: &[]StatusFilter{StatusFilterApproved}}, 56},
		{ListBrandedPhoneNumbersParams{InternalName: &[]string{"Billing & Payments", "A+B, 100%"}}, 120},
		{ListBrandedPhoneNumbersParams{Status: &[]StatusFilter{StatusFilterSubmittedForReview}}, 80},
	} {
		if numbers := walk(t, test.params); len(numbers) != test.count {
			t.Errorf("listed %d numbers, not %d", len(numbers), test.count)
		}
	}
}

func TestReadsEveryFaultOfARejectedRequest(t *testing.T) {
	size, phone := int32(0), "14155550007"
	response := list(t, os.Getenv("SERVICE_URL"), ListBrandedPhoneNumbersParams{Size: &size, PhoneNumber: &phone})
	problem := response.ApplicationproblemJSON400
	if problem == nil || problem.Errors == nil || len(*problem.Errors) != 2 {
		t.Fatalf("the response is %s", response.Body)
	}
}

func TestReadsA429AndItsRetryAfter(t *testing.T) {
	response := list(t, os.Getenv("FAILING_URL")+"/oapi-codegen/429-1", ListBrandedPhoneNumbersParams{})
	if response.StatusCode() != 429 || response.ApplicationproblemJSON429.Message != "Unavailable" {
		t.Errorf("the response is %s", response.Body)
	}
	if after := response.HTTPResponse.Header.Get("Retry-After"); after != "1" {
		t.Errorf("Retry-After is %q", after)
	}
}

func TestAcceptsNewMembersAndValues(t *testing.T) {
	phone := "+14155550001"
	page := list(t, os.Getenv("GROWN_URL"), ListBrandedPhoneNumbersParams{PhoneNumber: &phone}).JSON200
	if page == nil || page.Items[0].Status != "on hold" {
		t.Fatalf("the page is %v", page)
	}
	if entry := page.Items[0].CarrierStatuses[0]; entry.Feature != "voicemailGreeting" || entry.DetailedStatus != "expired.optIn" {
		t.Errorf("the entry is %v", entry)
	}
}
