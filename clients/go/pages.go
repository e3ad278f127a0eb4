// Package brandedphonenumbers is a client of the Branded Phone Numbers API. [NewAPIClient] makes one, its
// ListBrandedPhoneNumbers takes the filters, and [ApiListBrandedPhoneNumbersRequest.EachNumber] walks over all pages.
package brandedphonenumbers

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	// tries is how many times a page is requested before its error is returned.
	tries       = 5
	longestWait = time.Minute
)

// EachNumber walks over every number that matches, page after page. After a 429, a 503 or a broken connection it waits
// and tries again; a page is requested at most five times. An error ends the walk, and so does the request's context,
// even while it waits.
func (r ApiListBrandedPhoneNumbersRequest) EachNumber() iter.Seq2[BrandedPhoneNumber, error] {
	return func(yield func(BrandedPhoneNumber, error) bool) {
		request := r
		if request.size == nil {
			request = request.Size(100)
		}
		for {
			page, err := request.ask()
			if err != nil {
				yield(BrandedPhoneNumber{}, err)
				return
			}
			for _, number := range page.Items {
				if !yield(number, nil) {
					return
				}
			}
			cursor := page.NextCursor.Get()
			if cursor == nil {
				return
			}
			request = request.NextCursor(*cursor)
		}
	}
}

func (r ApiListBrandedPhoneNumbersRequest) ask() (*BrandedPhoneNumberPage, error) {
	for attempt := 1; ; attempt++ {
		page, response, err := r.Execute()
		if err == nil || attempt == tries || !isPassing(response, err) {
			return page, err
		}
		select {
		case <-r.ctx.Done():
			return nil, context.Cause(r.ctx)
		case <-time.After(waitAfter(response, attempt)):
		}
	}
}

// isPassing says whether the same request may succeed a little later.
func isPassing(response *http.Response, err error) bool {
	var broken *url.Error
	if errors.As(err, &broken) {
		return !broken.Timeout() && !errors.Is(err, context.Canceled)
	}
	return response != nil && (response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusServiceUnavailable)
}

// waitAfter is how long to wait: as the service says, in seconds or as a date (RFC 9110 section 10.2.3), or half a
// second, doubled with each attempt.
func waitAfter(response *http.Response, attempt int) time.Duration {
	wait := 500 * time.Millisecond << (attempt - 1)
	if response != nil {
		value := response.Header.Get("Retry-After")
		if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
			wait = time.Duration(seconds) * time.Second
		} else if date, err := http.ParseTime(value); err == nil {
			wait = time.Until(date)
		}
	}
	return min(wait, longestWait)
}
