// Package brandedphonenumbers is a client of the Branded Phone Numbers API. [NewAPIClient] creates a client.
// ListBrandedPhoneNumbers creates a request with filters, and [ApiListBrandedPhoneNumbersRequest.EachNumber] reads all pages.
package brandedphonenumbers

import (
	"iter"
	"net/http"
)

// EachNumber iterates over every number that matches, page after page. It waits and retries after a 429, 502, 503, 504 or a
// broken connection, and requests a page at most five times. It ends after any other error, or when the request's context is
// done, even while it waits.
func (r ApiListBrandedPhoneNumbersRequest) EachNumber() iter.Seq2[BrandedPhoneNumber, error] {
	return func(yield func(BrandedPhoneNumber, error) bool) {
		request := r.Retry()
		if request.size == nil {
			request = request.Size(100)
		}
		for {
			page, _, err := request.Execute()
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
