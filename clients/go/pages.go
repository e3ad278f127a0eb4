// Package brandedphonenumbers is a client of the Branded Phone Numbers API. [NewAPIClient] creates a client.
// ListBrandedPhoneNumbers creates a request with filters, and [ApiListBrandedPhoneNumbersRequest.EachNumber] reads all pages.
package brandedphonenumbers

import (
	"io"
	"iter"
	"net/http"
	"time"
)

// RetryFor returns a copy of the request that retries after a 429, 502, 503, 504 or a broken connection until this time would be
// exceeded, 60 seconds by default. Zero turns retries off. In a walk, the time is that of each page.
func (r ApiListBrandedPhoneNumbersRequest) RetryFor(limit time.Duration) ApiListBrandedPhoneNumbersRequest {
	r.retryFor = limit
	return r
}

// RequestsPerSecond returns a copy of the request that bounds the requests of EachPage and EachNumber in any one second. All
// walks with the same client share it. The service allows 10 by default.
func (r ApiListBrandedPhoneNumbersRequest) RequestsPerSecond(requestsPerSecond int) ApiListBrandedPhoneNumbersRequest {
	r.requestsPerSecond = requestsPerSecond
	return r
}

// EachPage iterates over every page of the numbers that match, from the first page or the one that NextCursor leads to. The
// NextCursor of a page leads to the page after it, so a walk that ended there is resumed with
// request.NextCursor(cursor).EachPage().
//
// Each page is retried as any other request. The walk ends after an error, or when the request's context is done, even while
// it waits.
func (r ApiListBrandedPhoneNumbersRequest) EachPage() iter.Seq2[*BrandedPhoneNumberPage, error] {
	return func(yield func(*BrandedPhoneNumberPage, error) bool) {
		request := r
		request.isWalk = true
		if request.size == nil {
			request = request.Size(100)
		}
		if request.requestsPerSecond == 0 {
			request.requestsPerSecond = defaultRequestsPerSecond
		}
		sent := map[string]bool{}
		for {
			if request.nextCursor != nil {
				sent[*request.nextCursor] = true
			}
			page, response, err := request.Execute()
			if err != nil {
				yield(nil, err)
				return
			}
			cursor := page.NextCursor.Get()
			if cursor != nil && sent[*cursor] {
				// It leads back to a page that was read before: the walk would not end.
				body, _ := io.ReadAll(response.Body)
				yield(nil, errorOf(response, body, "Unexpected Response: the nextCursor "+*cursor+" repeats"))
				return
			}
			if !yield(page, nil) || cursor == nil {
				return
			}
			request = request.NextCursor(*cursor)
		}
	}
}

// EachNumber iterates over every number that matches, page after page. It ends as EachPage does.
func (r ApiListBrandedPhoneNumbersRequest) EachNumber() iter.Seq2[BrandedPhoneNumber, error] {
	return func(yield func(BrandedPhoneNumber, error) bool) {
		for page, err := range r.EachPage() {
			if err != nil {
				yield(BrandedPhoneNumber{}, err)
				return
			}
			for _, number := range page.Items {
				if !yield(number, nil) {
					return
				}
			}
		}
	}
}

// PageIfChanged returns a page and its ETag, or nil and the given etag if the page has not changed since it had that etag
// (304 Not Modified). If etag is empty, it always returns the page.
func (r ApiListBrandedPhoneNumbersRequest) PageIfChanged(etag string) (*BrandedPhoneNumberPage, string, error) {
	r.ifNoneMatch = etag
	page, response, err := r.Execute()
	if response != nil && response.StatusCode == http.StatusNotModified {
		return nil, etag, nil
	}
	if err != nil {
		return nil, etag, err
	}
	return page, response.Header.Get("ETag"), nil
}
