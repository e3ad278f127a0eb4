// The module, fetched as `go get` would, run against the live service.
package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"testing"
	"time"

	client "branded-phone-numbers.example/clients/go"
)

type shape struct {
	Title     string
	Arguments struct {
		PhoneNumber       *string
		BusinessProfileId *string
		ReportingGroup    []string
		InternalName      []string
		Carrier           []string
		Feature           []client.Feature
		Status            []client.StatusFilter
		DetailedStatus    []client.DetailedStatus
	}
	Query string
	Count int
}

func api(url string) *client.BrandedPhoneNumbersAPIService {
	configuration := client.NewConfiguration()
	configuration.Servers = client.ServerConfigurations{{URL: url}}
	return client.NewAPIClient(configuration).BrandedPhoneNumbersAPI
}

func service() *client.BrandedPhoneNumbersAPIService { return api(os.Getenv("SERVICE_URL")) }

func list(service *client.BrandedPhoneNumbersAPIService) client.ApiListBrandedPhoneNumbersRequest {
	return service.ListBrandedPhoneNumbers(context.Background())
}

// walk collects all pages of a walk by hand, of the largest size.
func walk(t *testing.T, request client.ApiListBrandedPhoneNumbersRequest) []string {
	t.Helper()
	numbers := []string{}
	request = request.Size(100)
	for {
		page, _, err := request.Execute()
		if err != nil {
			t.Fatal(err)
		}
		for _, number := range page.Items {
			numbers = append(numbers, number.PhoneNumber)
		}
		if page.NextCursor.Get() == nil {
			return numbers
		}
		request = request.NextCursor(*page.NextCursor.Get())
	}
}

func TestListsTheRightNumbersForEveryShape(t *testing.T) {
	file, err := os.ReadFile(os.Getenv("SHAPES"))
	if err != nil {
		t.Fatal(err)
	}
	var shapes []shape
	if err := json.Unmarshal(file, &shapes); err != nil {
		t.Fatal(err)
	}
	for _, shape := range shapes {
		t.Run(shape.Title, func(t *testing.T) {
			given := shape.Arguments
			request := list(service()).
				ReportingGroup(given.ReportingGroup).InternalName(given.InternalName).Carrier(given.Carrier).
				Feature(given.Feature).Status(given.Status).DetailedStatus(given.DetailedStatus)
			if given.PhoneNumber != nil {
				request = request.PhoneNumber(*given.PhoneNumber)
			}
			if given.BusinessProfileId != nil {
				request = request.BusinessProfileId(*given.BusinessProfileId)
			}
			numbers := walk(t, request)
			if len(numbers) != shape.Count {
				t.Errorf("listed %d numbers, not %d", len(numbers), shape.Count)
			}
			for i, number := range firstPage(t, shape.Query) {
				if i >= len(numbers) || numbers[i] != number {
					t.Fatalf("number %d is not %s", i, number)
				}
			}
		})
	}
}

// firstPage asks as the specification writes it, without the client.
func firstPage(t *testing.T, query string) []string {
	t.Helper()
	answer, err := http.Get(os.Getenv("SERVICE_URL") + "/v1/brandedPhoneNumbers?size=100&" + query)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var page struct{ Items []struct{ PhoneNumber string } }
	if err := json.NewDecoder(answer.Body).Decode(&page); err != nil {
		t.Fatal(err)
	}
	numbers := []string{}
	for _, item := range page.Items {
		numbers = append(numbers, item.PhoneNumber)
	}
	return numbers
}

func TestSendsAnEmptySliceAsNoFilter(t *testing.T) {
	if numbers := walk(t, list(service()).Carrier([]string{}).Status([]client.StatusFilter{})); len(numbers) != 240 {
		t.Errorf("listed %d numbers, not 240", len(numbers))
	}
}

func TestReadsTimesAndWhatIsNotKnown(t *testing.T) {
	page, _, err := list(service()).PhoneNumber("+14155550003").Execute()
	if err != nil {
		t.Fatal(err)
	}
	if page.NextCursor.Get() != nil {
		t.Error("the cursor of the last page is not nil")
	}
	number, created := page.Items[0], time.Date(2026, 2, 3, 16, 49, 2, 748_000_000, time.UTC)
	if !number.CreatedAt.Equal(created) || !number.CarrierStatuses[0].CreatedAt.Equal(created) {
		t.Errorf("created at %v, its entry at %v", number.CreatedAt, number.CarrierStatuses[0].CreatedAt)
	}
	if number.InternalName.Get() != nil || number.BrandingNameLong.Get() != nil {
		t.Error("a name that is not known is not nil")
	}
	if name := number.BrandingNameShort.Get(); name == nil || *name != "Café & Co" {
		t.Errorf("the short name is %v", name)
	}
}

func TestReturnsARefusedRequestAsAnErrorThatCarriesTheProblem(t *testing.T) {
	_, answer, err := list(service()).NextCursor("damaged").Execute()
	var refused *client.GenericOpenAPIError
	if !errors.As(err, &refused) || answer.StatusCode != 400 {
		t.Fatalf("no such error: %v", err)
	}
	if problem, ok := refused.Model().(client.Problem); !ok || problem.Type != "/problems/invalid-cursor" {
		t.Errorf("its model is %v", refused.Model())
	}
}

func TestReturnsA429AtOnceWithRetryAfter(t *testing.T) {
	limited := api(os.Getenv("LIMITED_URL"))
	time.Sleep(1100 * time.Millisecond)
	started := time.Now()
	for i := 1; i <= 11; i++ {
		_, answer, err := list(limited).Size(1).Execute()
		if i <= 10 && err != nil {
			t.Fatal(err)
		}
		if i == 11 && (err == nil || answer.StatusCode != 429 || answer.Header.Get("Retry-After") != "1") {
			t.Errorf("the eleventh answer is %v", answer)
		}
	}
	if elapsed := time.Since(started); elapsed > time.Second {
		t.Errorf("it took %v", elapsed)
	}
}

func TestIsNotBrokenByMembersAndValuesThatAreNewerThanIt(t *testing.T) {
	page, _, err := list(api(os.Getenv("GROWN_URL"))).PhoneNumber("+14155550001").Execute()
	if err != nil {
		t.Fatal(err)
	}
	number := page.Items[0]
	if number.Status != "on hold" {
		t.Errorf("the status is %q", number.Status)
	}
	if entry := number.CarrierStatuses[0]; entry.Feature != "voicemailGreeting" || entry.DetailedStatus != "expired.optIn" {
		t.Errorf("the entry is %v", entry)
	}
	if number.AdditionalProperties["region"] == nil {
		t.Error("the new member is lost")
	}
}
