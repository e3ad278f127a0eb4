// Tests the installed module against a running service.
package client_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

func api(url string) *client.BrandedPhoneNumbersAPIService { return apiBy(nil, url) }

// apiBy returns a client that sends its requests by sender, or by the default one if it is nil.
func apiBy(sender *http.Client, url string) *client.BrandedPhoneNumbersAPIService {
	configuration := client.NewConfiguration()
	configuration.Servers = client.ServerConfigurations{{URL: url}}
	configuration.HTTPClient = sender
	return client.NewAPIClient(configuration).BrandedPhoneNumbersAPI
}

func service() *client.BrandedPhoneNumbersAPIService { return api(os.Getenv("SERVICE_URL")) }

func list(service *client.BrandedPhoneNumbersAPIService) client.ApiListBrandedPhoneNumbersRequest {
	return service.ListBrandedPhoneNumbers(context.Background())
}

// walk returns the numbers of all pages, requested without the helper, with the largest page size.
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
	for _, shape := range decode[[]shape](t, file) {
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

// get sends a request without the client, and returns the body of the response.
func get(t *testing.T, url string) []byte {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func decode[T any](t *testing.T, text []byte) (value T) {
	t.Helper()
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func firstPage(t *testing.T, query string) []string {
	t.Helper()
	type page struct {
		Items []struct{ PhoneNumber string }
	}
	numbers := []string{}
	for _, item := range decode[page](t, get(t, os.Getenv("SERVICE_URL")+"/v1/brandedPhoneNumbers?size=100&"+query)).Items {
		numbers = append(numbers, item.PhoneNumber)
	}
	return numbers
}

func TestSendsAnEmptySliceAsNoFilter(t *testing.T) {
	if numbers := walk(t, list(service()).Carrier([]string{}).Status([]client.StatusFilter{})); len(numbers) != 240 {
		t.Errorf("listed %d numbers, not 240", len(numbers))
	}
}

func TestReadsTimesAndNullMembers(t *testing.T) {
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

func TestHasTheKnownValuesAsTheyAreInAPage(t *testing.T) {
	page, _, err := list(service()).PhoneNumber("+14155550001").Execute()
	if err != nil {
		t.Fatal(err)
	}
	number, entry := page.Items[0], page.Items[0].CarrierStatuses[0]
	if number.Status != client.STATUS_REJECTED || entry.Feature != client.FEATURE_BRANDED_CALLER_ID ||
		entry.DetailedStatus != client.DETAILEDSTATUS_REJECTED_OPT_IN {
		t.Errorf("the number is %v", number)
	}
}

func TestWritesAPageAsTheServiceSendsIt(t *testing.T) {
	sent := get(t, os.Getenv("SERVICE_URL")+"/v1/brandedPhoneNumbers?size=100")
	for _, moment := range []string{`"2026-02-03T16:49:02.800Z"`, `"2026-02-03T16:49:02.000Z"`} {
		if !strings.Contains(string(sent), moment) {
			t.Errorf("no number has the time %s", moment)
		}
	}
	page, _, err := list(service()).Size(100).Execute()
	if err != nil {
		t.Fatal(err)
	}
	page.Items[0].CreatedAt = page.Items[0].CreatedAt.In(time.FixedZone("", 3600))
	written, err := json.Marshal(page)
	if err != nil || !reflect.DeepEqual(decode[any](t, written), decode[any](t, sent)) {
		t.Errorf("%v: %s", err, written)
	}
}

func TestAsksForCompressedResponsesAndNamesItselfAfterTheProgram(t *testing.T) {
	url := failingUrl("ok")
	configuration := client.NewConfiguration()
	configuration.Servers = client.ServerConfigurations{{URL: url}}
	own := configuration.UserAgent
	if !regexp.MustCompile(`^branded-phone-numbers-client/\d+\.\d+\.\d+ \(Go\)$`).MatchString(own) {
		t.Errorf("the user agent is %q", own)
	}
	configuration.UserAgent = "acme-sync/2.0 " + own
	page, _, err := list(client.NewAPIClient(configuration).BrandedPhoneNumbersAPI).Size(100).Execute()
	if err != nil || len(page.Items) != 100 {
		t.Fatal(err)
	}
	if _, _, err := list(api(url)).Execute(); err != nil {
		t.Fatal(err)
	}
	sent := received(t, url)
	if sent[0].Bytes == 0 || sent[0].Bytes > 10_000 {
		t.Errorf("the page had %d bytes", sent[0].Bytes)
	}
	if sent[0].Headers["user-agent"] != "acme-sync/2.0 "+own || sent[1].Headers["user-agent"] != own {
		t.Errorf("the requests were %v", sent)
	}
}

// net/http reads HTTP_PROXY once, at the first request. It does not use the proxy for loopback addresses.
func init() { os.Setenv("HTTP_PROXY", os.Getenv("FAILING_URL")) }

func TestUsesTheProxyOfTheEnvironment(t *testing.T) {
	if page, _, err := list(api("http://numbers.invalid/go/ok")).Size(1).Execute(); err != nil || len(page.Items) != 1 {
		t.Error(err)
	}
}

func TestReturnsAnErrorWithTheProblemIfTheRequestIsRejected(t *testing.T) {
	_, response, err := list(service()).NextCursor("damaged").Execute()
	var refused *client.GenericOpenAPIError
	if !errors.As(err, &refused) || response.StatusCode != 400 {
		t.Fatalf("no such error: %v", err)
	}
	problem := refused.Problem()
	if problem == nil || problem.Type != "/problems/invalid-cursor" {
		t.Fatalf("its problem is %v", problem)
	}
	if err.Error() != "400 Invalid Cursor: "+problem.Detail {
		t.Errorf("its message is %q", err)
	}
	if id := refused.RequestID(); id == "" || id != response.Header.Get("X-Request-Id") {
		t.Errorf("its request id is %q", id)
	}
}

func TestReturnsAnErrorWithTheContentTypeIfAProxyResponds(t *testing.T) {
	_, _, err := list(api(os.Getenv("FAILING_URL") + "/go/html")).RetryFor(0).Execute()
	var refused *client.GenericOpenAPIError
	if !errors.As(err, &refused) || refused.Problem() != nil || !strings.Contains(string(refused.Body()), "Bad Gateway") {
		t.Fatalf("no such error: %v", err)
	}
	if err.Error() != "502 Unexpected Response: text/html instead of application/problem+json" {
		t.Errorf("its message is %q", err)
	}
}

func TestReturnsAnErrorWithTheBeginningOfA200ThatIsNotAPage(t *testing.T) {
	for step, start := range map[string]string{"login": "<h1>Log in</h1>" + strings.Repeat(".", 85), "other": `{"ok":true}`} {
		_, _, err := list(api(os.Getenv("FAILING_URL") + "/go/" + step)).Execute()
		if err == nil || err.Error() != "200 Unexpected Response: not a page of numbers: "+start {
			t.Errorf("%s: %v", step, err)
		}
	}
}

func TestRejectsAPageThat(t *testing.T) {
	for _, step := range strings.Split(os.Getenv("MALFORMED"), " ") {
		t.Run(step, func(t *testing.T) {
			_, _, err := list(api(os.Getenv("FAILING_URL") + "/go/" + step)).Execute()
			if err == nil || !strings.HasPrefix(err.Error(), "200 Unexpected Response: not a page of numbers: ") {
				t.Error(err)
			}
		})
	}
}

func TestFollowsNoRedirectAndSaysWhereItLeadsTo(t *testing.T) {
	url := failingUrl("moved*")
	_, err := collect(list(api(url)).EachNumber())
	found := "redirected to " + os.Getenv("SERVICE_URL") + ": set that as the base URL"
	if err == nil || err.Error() != "308 Unexpected Response: "+found {
		t.Error(err)
	}
	if got := len(received(t, url)); got != 1 {
		t.Errorf("there are %d requests", got)
	}
}

func TestReturnsAnErrorAtOnceIfTheBaseURLHasNoScheme(t *testing.T) {
	for _, url := range []string{"localhost:3000", "numbers.example.com"} {
		_, err := collect(list(api(url)).EachNumber())
		if err == nil || err.Error() != "the base URL must begin with http:// or https://, unlike "+url {
			t.Error(err)
		}
	}
}

func TestReturnsAnErrorAtOnceIfItDoesNotTrustTheCertificate(t *testing.T) {
	before := connections(t)
	_, err := collect(list(api(os.Getenv("UNTRUSTED_URL"))).EachNumber())
	var untrusted *tls.CertificateVerificationError
	if !errors.As(err, &untrusted) {
		t.Error(err)
	}
	if after := connections(t); after != before+1 {
		t.Errorf("it connected %d times", after-before)
	}
}

func TestReturnsAnErrorAtOnceIfTheServiceDoesNotSpeakTLS(t *testing.T) {
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	_, err := collect(list(api(strings.Replace(server.URL, "http", "https", 1))).EachNumber())
	if !errors.Is(err, http.ErrSchemeMismatch) || connections.Load() != 1 {
		t.Errorf("%v after %d connections", err, connections.Load())
	}
}

// connections returns how often clients have connected to the server whose certificate they do not trust.
func connections(t *testing.T) int {
	t.Helper()
	return decode[int](t, get(t, os.Getenv("UNTRUSTED_COUNT_URL")))
}

func TestAcceptsABaseURLThatEndsWithASlash(t *testing.T) {
	for _, url := range []string{os.Getenv("SERVICE_URL") + "/", os.Getenv("FAILING_URL") + "/go/ok/"} {
		if page, _, err := list(api(url)).Size(1).Execute(); err != nil || len(page.Items) != 1 {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestSendsAKey(t *testing.T) {
	key := os.Getenv("API_KEY")
	for _, ctx := range []context.Context{
		context.WithValue(context.Background(), client.ContextAccessToken, key),
		context.WithValue(context.Background(), client.ContextAPIKeys, map[string]client.APIKey{"apiKey": {Key: key}}),
	} {
		if _, _, err := api(os.Getenv("KEYED_URL")).ListBrandedPhoneNumbers(ctx).Execute(); err != nil {
			t.Error(err)
		}
	}
	if _, _, err := list(api(os.Getenv("KEYED_URL"))).Execute(); err == nil {
		t.Error("no key was needed")
	}
}

func TestRetriesInEveryCallUnlessRetriesAreTurnedOff(t *testing.T) {
	byDefault := list(api(failingUrl("503,break,ok,429-1")))
	if page, _, err := byDefault.Execute(); err != nil || len(page.Items) != 25 {
		t.Error(err)
	}
	if page, _, err := byDefault.PageIfChanged(""); err != nil || len(page.Items) != 25 {
		t.Error(err)
	}
	once := list(api(failingUrl("503,ok,break,429"))).RetryFor(0)
	if _, _, err := once.Execute(); err == nil || err.Error() != "503 Unavailable: Try again." {
		t.Error(err)
	}
	if _, _, err := once.PageIfChanged(""); err != nil {
		t.Error(err)
	}
	if _, _, err := once.PageIfChanged(""); err == nil {
		t.Error("a broken connection is no error")
	}
	if _, err := collect(once.EachNumber()); err == nil || !strings.HasPrefix(err.Error(), "429 ") {
		t.Error(err)
	}
}

func TestGivesUpWhenARetryWouldExceedItsTime(t *testing.T) {
	for _, steps := range []string{"503,429-20*", "late*"} {
		url := failingUrl(steps)
		_, _, err := list(api(url)).RetryFor(6 * time.Second).Execute()
		if waited := waits(t, url); err == nil || len(waited) != 1 {
			t.Errorf("%s: %v after %v", steps, err, waited)
		}
	}
}

func TestFindsHeadersInAnyCase(t *testing.T) {
	for _, name := range []string{"etag", "Etag", "ETag"} {
		_, response, err := list(api(os.Getenv("FAILING_URL") + "/go/" + name)).Execute()
		if err != nil || !strings.HasPrefix(response.Header.Get("ETag"), "W/") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPageIfChangedReturnsAPageWithItsETagAndNilIfItHasNotChanged(t *testing.T) {
	for _, name := range []string{"etag", "Etag", "ETag"} {
		proxied := api(os.Getenv("FAILING_URL") + "/go/" + name)
		held, etag, err := list(proxied).Size(2).PageIfChanged("")
		if err != nil || len(held.Items) != 2 || !strings.HasPrefix(etag, "W/") {
			t.Fatalf("%s: %v, %v", name, etag, err)
		}
		if page, same, err := list(proxied).Size(2).PageIfChanged(etag); page != nil || same != etag || err != nil {
			t.Errorf("%s: %v, %v, %v", name, page, same, err)
		}
		if page, other, err := list(proxied).Size(3).PageIfChanged(etag); err != nil || len(page.Items) != 3 || other == etag {
			t.Errorf("%s: %v, %v", name, other, err)
		}
		if _, _, err := list(proxied).NextCursor("damaged").PageIfChanged(etag); err == nil {
			t.Error("a damaged cursor is no error")
		}
	}
}

// hasty returns a client whose requests time out after 300 milliseconds.
func hasty(url string) *client.BrandedPhoneNumbersAPIService {
	return apiBy(&http.Client{Timeout: 300 * time.Millisecond}, url)
}

func TestTimesOut(t *testing.T) {
	for _, step := range []string{"silent", "stall", "trickle", "drip"} {
		_, _, err := list(hasty(os.Getenv("FAILING_URL") + "/go/" + step)).Execute()
		var timeout interface{ Timeout() bool }
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("%s: %v", step, err)
		}
	}
}

func TestReturnsA429WithRetryAfter(t *testing.T) {
	url := failingUrl("429-1")
	_, response, err := list(api(url)).RetryFor(0).Execute()
	if err == nil || response.StatusCode != 429 || response.Header.Get("Retry-After") != "1" {
		t.Errorf("the response is %v", response)
	}
	if got := len(received(t, url)); got != 1 {
		t.Errorf("there are %d requests", got)
	}
}

func TestAcceptsNewMembersAndValues(t *testing.T) {
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

// failingUrl is a base URL of the failing proxy (clients/live/failing.ts).
func failingUrl(steps string) string {
	return fmt.Sprintf("%s/go-%d/%s", os.Getenv("FAILING_URL"), time.Now().UnixNano(), steps)
}

type request struct {
	At      float64
	Headers map[string]string
	Bytes   int
}

// received returns the requests to this URL: when each arrived, its headers, and the size of the response.
func received(t *testing.T, url string) []request {
	t.Helper()
	return decode[[]request](t, get(t, url+"/requests"))
}

// waits returns the milliseconds between the requests to this URL.
func waits(t *testing.T, url string) []float64 {
	t.Helper()
	var waits []float64
	requests := received(t, url)
	for i := 1; i < len(requests); i++ {
		waits = append(waits, requests[i].At-requests[i-1].At)
	}
	return waits
}

func collect(numbers iter.Seq2[client.BrandedPhoneNumber, error]) ([]string, error) {
	var collected []string
	for number, err := range numbers {
		if err != nil {
			return collected, err
		}
		collected = append(collected, number.PhoneNumber)
	}
	return collected, nil
}

func all() []string {
	numbers := []string{}
	for i := range 240 {
		numbers = append(numbers, fmt.Sprintf("+1415555%04d", i))
	}
	return numbers
}

// expectAll reports an error unless a walk yields every number once, in order.
func expectAll(t *testing.T, request client.ApiListBrandedPhoneNumbersRequest) {
	t.Helper()
	if numbers, err := collect(request.EachNumber()); err != nil || !slices.Equal(numbers, all()) {
		t.Errorf("%v after %d numbers: %v", err, len(numbers), numbers)
	}
}

func TestEachNumberYieldsEveryNumberOnceInOrderOverAllPages(t *testing.T) {
	expectAll(t, list(service()).Size(7))
}

func TestEachNumberEndsWhenTheLoopBreaks(t *testing.T) {
	url := failingUrl("ok")
	for range list(api(url)).Size(10).EachNumber() {
		break
	}
	if len(waits(t, url)) != 0 {
		t.Error("it went on")
	}
}

func TestTwelveProgramsThatShareOneRateLimitFinish(t *testing.T) {
	var programs sync.WaitGroup
	for range 12 {
		programs.Add(1)
		go func() {
			defer programs.Done()
			expectAll(t, list(api(os.Getenv("LIMITED_URL"))).Size(20))
		}()
	}
	programs.Wait()
}

// recorder records the time and the status of each request.
type recorder struct {
	lock     sync.Mutex
	times    []time.Time
	statuses []int
}

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	sent := time.Now()
	response, err := http.DefaultTransport.RoundTrip(request)
	r.lock.Lock()
	defer r.lock.Unlock()
	r.times = append(r.times, sent)
	r.statuses = append(r.statuses, response.StatusCode)
	return response, err
}

func TestEachPageSendsAtMostTenRequestsPerSecondSoNoneIsRejected(t *testing.T) {
	time.Sleep(1100 * time.Millisecond)
	recorded := &recorder{}
	paced := apiBy(&http.Client{Transport: recorded}, os.Getenv("LIMITED_URL"))
	var walks sync.WaitGroup
	for range 2 {
		walks.Add(1)
		go func() {
			defer walks.Done()
			expectAll(t, list(paced).Size(20))
		}()
	}
	walks.Wait()
	if len(recorded.statuses) != 24 || slices.ContainsFunc(recorded.statuses, func(status int) bool { return status != 200 }) {
		t.Errorf("the statuses are %v", recorded.statuses)
	}
	checkPace(t, recorded.times, 10)
}

func TestEachPageKeepsTheGivenPace(t *testing.T) {
	recorded := &recorder{}
	paced := apiBy(&http.Client{Transport: recorded}, os.Getenv("SERVICE_URL"))
	expectAll(t, list(paced).Size(20).RequestsPerSecond(4))
	checkPace(t, recorded.times, 4)
}

// checkPace reports a second with more than this many requests.
func checkPace(t *testing.T, times []time.Time, most int) {
	t.Helper()
	slices.SortFunc(times, time.Time.Compare)
	for i := most; i < len(times); i++ {
		if elapsed := times[i].Sub(times[i-most]); elapsed < time.Second {
			t.Errorf("%d requests within %v", most+1, elapsed)
		}
	}
}

func TestEachPageResumesAfterThePageThatHadACursor(t *testing.T) {
	request := list(service()).Carrier([]string{"AT&T"})
	sizes := []int{}
	var cursor string
	for page, err := range request.EachPage() {
		if err != nil {
			t.Fatal(err)
		}
		sizes, cursor = append(sizes, len(page.Items)), *page.NextCursor.Get()
		break
	}
	for page, err := range request.NextCursor(cursor).EachPage() {
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(page.Items))
	}
	if !slices.Equal(sizes, []int{100, 100}) {
		t.Errorf("the pages had %v numbers", sizes)
	}
}

func TestEachPageReturnsAnErrorIfACursorRepeats(t *testing.T) {
	for steps, count := range map[string]int{"cursor-a*": 1, "cursor-a,cursor-b,cursor-c,cursor-a*": 3} {
		pages := 0
		var last error
		for _, err := range list(api(failingUrl(steps))).EachPage() {
			if err == nil {
				pages++
			}
			last = err
			if pages > count {
				break
			}
		}
		var repeated *client.GenericOpenAPIError
		if !errors.As(last, &repeated) || last.Error() != "200 Unexpected Response: the nextCursor a repeats" || pages != count {
			t.Errorf("%d pages, then %v", pages, last)
		}
	}
}

func TestEachNumberRetriesEachPageAfterWaitsThatDoubleUpToEightSecondsEachWithARandomPart(t *testing.T) {
	url := failingUrl("etag,break,503,429-1,html,half,504,ok,503")
	expectAll(t, list(api(url)))
	waited, sum := waits(t, url), 0.0
	for i, least := range []float64{500, 1000, 2000, 4000, 8000, 8000} {
		sum += waited[i]
		if waited[i] < least-10 {
			t.Errorf("it waited %v", waited)
		}
	}
	if len(waited) != 9 || sum < 23_750 || waited[5] > 15_000 || waited[7] > 7900 {
		t.Errorf("it waited %v", waited)
	}
}

func TestEachPageDoesNotCountWhatItWaitsForItsPaceInTheTimeOfRetries(t *testing.T) {
	paced := list(api(failingUrl("ok,ok,ok,503"))).RetryFor(2 * time.Second).RequestsPerSecond(1)
	var walks sync.WaitGroup
	for range 4 {
		walks.Add(1)
		go func() {
			defer walks.Done()
			for _, err := range paced.EachPage() {
				if err != nil {
					t.Error(err)
				}
				break
			}
		}()
	}
	walks.Wait()
}

func TestEachNumberSlowsDownWithEach429AndRegainsItsPacePageByPage(t *testing.T) {
	url := failingUrl("size=30,429,429,429")
	expectAll(t, list(api(url)))
	// An eighth of ten requests per second, and a fiftieth more after each page.
	if waited := waits(t, url); slices.Min(waited[2:6]) < 990 || slices.Min(waited[6:]) > 900 {
		t.Errorf("it waited %v", waited)
	}
}

func TestEachNumberWaitsUntilTheDateOrSoManySecondsInRetryAfter(t *testing.T) {
	url := failingUrl("503-date,503-2,503-")
	expectAll(t, list(api(url)))
	if waited := waits(t, url); waited[0] < 990 || waited[1] < 1990 || waited[2] < 1990 {
		t.Errorf("it waited %v", waited)
	}
}

func TestEachNumberReturnsPermanentErrorsAtOnce(t *testing.T) {
	for _, step := range []string{"500", "login", "silent"} {
		url := failingUrl(step)
		if _, err := collect(list(hasty(url)).EachNumber()); err == nil || len(waits(t, url)) != 0 {
			t.Errorf("%s: %v after %v", step, err, waits(t, url))
		}
	}
}

func TestEachNumberEndsWhileItWaitsIfItsContextIsCanceled(t *testing.T) {
	context, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	started := time.Now()
	_, err := collect(api(failingUrl("503-50")).ListBrandedPhoneNumbers(context).EachNumber())
	if err == nil || time.Since(started) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(started))
	}
}
