package brandedphonenumbers

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	// defaultRetryFor is how long a call retries, unless RetryFor sets another time.
	defaultRetryFor = time.Minute
	// firstWait is the least wait before the first retry. It doubles with each retry.
	firstWait = 500 * time.Millisecond
	// maxDoubledWait bounds the doubling, so that a call soon notices that the service is back.
	maxDoubledWait = 8 * time.Second
	// maxRandom bounds a random part of each wait, so that processes with the same key do not all retry at the same time.
	maxRandom = 500 * time.Millisecond
)

// attempt sends a request once.
type attempt[T any] func() (*T, *http.Response, error)

// retrying calls send through pace, and retries after a 429, 502, 503, 504 or a broken connection, until send and the waits
// before retries would take more than retryFor in total. What pace waits does not count.
func retrying[T any](ctx context.Context, retryFor time.Duration, pace func(attempt[T]) (*T, *http.Response, error), send attempt[T]) (*T, *http.Response, error) {
	left := retryFor
	for least := firstWait; ; least = min(2*least, maxDoubledWait) {
		var began time.Time
		result, response, err := pace(func() (*T, *http.Response, error) {
			began = time.Now()
			return send()
		})
		if err == nil {
			return result, response, nil
		}
		wait := max(retryAfter(response), least) + time.Duration(rand.Int63n(int64(maxRandom)))
		left -= time.Since(began) + wait
		if left < 0 || !isTransient(response, err) {
			return nil, response, err
		}
		select {
		case <-ctx.Done():
			return nil, response, context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

func isRateLimited(response *http.Response) bool {
	return response != nil && response.StatusCode == http.StatusTooManyRequests
}

// isTransient returns whether the same request may succeed soon.
func isTransient(response *http.Response, err error) bool {
	var broken *url.Error
	if errors.As(err, &broken) {
		return !broken.Timeout() && !errors.Is(err, context.Canceled) && !isRefusedByTLS(err)
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

// isRefusedByTLS returns whether the certificate is not trusted, or the server does not speak TLS.
func isRefusedByTLS(err error) bool {
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &certificate) || errors.Is(err, http.ErrSchemeMismatch)
}

// retryAfter parses Retry-After, seconds or a date (RFC 9110 section 10.2.3). It returns 0 if it is neither.
func retryAfter(response *http.Response) time.Duration {
	if response == nil {
		return 0
	}
	value := response.Header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil {
		return time.Until(date)
	}
	return 0
}
