package brandedphonenumbers

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	// tries is how many times a request is sent before its error is returned.
	tries       = 5
	longestWait = time.Minute
)

// retrying calls send, up to five times while it fails with a 429, 502, 503, 504 or a broken connection.
func retrying[T any](ctx context.Context, send func() (*T, *http.Response, error)) (*T, *http.Response, error) {
	for attempt := 1; ; attempt++ {
		result, response, err := send()
		if err == nil || attempt == tries || !isPassing(response, err) {
			return result, response, err
		}
		select {
		case <-ctx.Done():
			return nil, response, context.Cause(ctx)
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
	if response == nil {
		return false
	}
	switch response.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
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
