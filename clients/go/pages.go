// Package brandedphonenumbers is a client of the Branded Phone Numbers API. [NewAPIClient] makes one, its
// ListBrandedPhoneNumbers takes the filters, and [ApiListBrandedPhoneNumbersRequest.EachNumber] walks over all pages.
package brandedphonenumbers

import (
	"iter"
	"net/http"
)

// EachNumber walks over every number that matches, page after page. After a 429, 502, 503, 504 or a broken connection it
// waits and tries again; a page is requested at most five times. An error ends the walk, and so does the request's
// context, even while it waits.
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

// PageIfChanged returns a page with its ETag; or nil and the same etag if it is still the one with this etag ("304 Not
// Modified"). With an empty etag it is always the page.
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
