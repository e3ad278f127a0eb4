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
	// maxFailures is how often a request may fail before its error is returned. Refusals by the rate limit do not count.
	maxFailures = 5
	// maxWait is the longest wait before a retry, and by default the total of a call's waits.
	maxWait = time.Minute
	// maxRandom bounds a random part of each wait, so that processes with the same key do not all retry at the same time.
	maxRandom = 500 * time.Millisecond
)

// retrying calls send, and retries after a 429, 502, 503, 504 or a broken connection, until it has waited budget in total. It
// gives up after five failures other than a 429.
func retrying[T any](ctx context.Context, budget time.Duration, send func() (*T, *http.Response, error)) (*T, *http.Response, error) {
	failures := 0
	for left := budget; ; {
		result, response, err := send()
		if err == nil {
			return result, response, nil
		}
		wait := waitAfter(response, failures) + time.Duration(rand.Int63n(int64(maxRandom)))
		if !isRateLimited(response) {
			failures++
			if failures == maxFailures || !isTransient(response, err) {
				return nil, response, err
			}
		}
		if left <= 0 {
			return nil, response, err
		}
		select {
		case <-ctx.Done():
			return nil, response, context.Cause(ctx)
		case <-time.After(min(wait, left)):
		}
		left -= wait
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
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// isRefusedByTLS returns whether the certificate is not trusted, or the server does not speak TLS.
func isRefusedByTLS(err error) bool {
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &certificate) || errors.Is(err, http.ErrSchemeMismatch)
}

// waitAfter returns how long to wait before the next attempt: until the time in Retry-After, which is in seconds or a date
// (RFC 9110 section 10.2.3), or half a second, doubled with each failure. It returns at most maxWait.
func waitAfter(response *http.Response, failures int) time.Duration {
	wait := 500 * time.Millisecond << failures
	if response != nil {
		value := response.Header.Get("Retry-After")
		if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
			wait = time.Duration(seconds) * time.Second
		} else if date, err := http.ParseTime(value); err == nil {
			wait = max(0, time.Until(date))
		}
	}
	return min(wait, maxWait)
}
