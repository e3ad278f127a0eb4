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
	// maxAttempts is how often a request is sent before its error is returned.
	maxAttempts = 5
	maxWait     = time.Minute
)

// retrying calls send, and retries after a 429, 502, 503, 504 or a broken connection. It calls send at most five times.
func retrying[T any](ctx context.Context, send func() (*T, *http.Response, error)) (*T, *http.Response, error) {
	for attempt := 1; ; attempt++ {
		result, response, err := send()
		if err == nil || attempt == maxAttempts || !isTransient(response, err) {
			return result, response, err
		}
		select {
		case <-ctx.Done():
			return nil, response, context.Cause(ctx)
		case <-time.After(waitAfter(response, attempt)):
		}
	}
}

// isTransient returns whether the same request may succeed soon.
func isTransient(response *http.Response, err error) bool {
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

// waitAfter returns how long to wait before the next attempt: until the time in Retry-After, which is in seconds or a date
// (RFC 9110 section 10.2.3), or half a second, doubled with each attempt. It returns at most maxWait.
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
	return min(wait, maxWait)
}
