package brandedphonenumbers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// requestTimeout bounds a request and its complete response, unless the configuration's HTTPClient has a Timeout.
const requestTimeout = 30 * time.Second

// exchange sends a request without a body and decodes its response into result. It returns a
// [*GenericOpenAPIError] if the response is not the expected one, together with that response and its readable body.
func (c *APIClient) exchange(ctx context.Context, base, path, method string, headers map[string]string, query url.Values, result any) (*http.Response, error) {
	if !strings.HasPrefix(base, "http://") && !strings.HasPrefix(base, "https://") {
		return nil, fmt.Errorf("the base URL must begin with http:// or https://, unlike %s", base)
	}
	if c.cfg.HTTPClient.Timeout == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, requestTimeout)
		defer cancel()
	}
	request, err := c.prepareRequest(ctx, base+path, method, nil, headers, query, url.Values{}, nil)
	if err != nil {
		return nil, err
	}
	response, err := c.withoutRedirects().callAPI(request)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return response, &url.Error{Op: method, URL: request.URL.String(), Err: err}
	}
	if target, err := response.Location(); err == nil && response.StatusCode >= 300 {
		target.RawQuery = ""
		found := "redirected to " + strings.TrimSuffix(target.String(), path) + ": set that as the base URL"
		return response, errorOf(response, body, "Unexpected Response: "+found)
	}
	var decoded any
	if response.StatusCode >= 300 || json.Unmarshal(body, &decoded) != nil || !pageSchema.conforms(decoded) ||
		json.Unmarshal(body, result) != nil {
		return response, errorOf(response, body, unexpected(response, body))
	}
	return response, nil
}

// withoutRedirects returns a copy of the client that follows no redirect: otherwise, the service might not get the key.
func (c *APIClient) withoutRedirects() *APIClient {
	httpClient := *c.cfg.HTTPClient
	httpClient.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	configuration := *c.cfg
	configuration.HTTPClient = &httpClient
	return &APIClient{cfg: &configuration}
}

// errorOf returns the error for a response, with the problem in its body, or with what was found if there is none.
func errorOf(response *http.Response, body []byte, found string) *GenericOpenAPIError {
	failure := &GenericOpenAPIError{body: body, requestID: response.Header.Get("X-Request-Id")}
	var problem Problem
	if err := json.Unmarshal(body, &problem); err != nil {
		failure.error = fmt.Sprintf("%d %s", response.StatusCode, found)
	} else {
		failure.error = fmt.Sprintf("%d %s: %s", response.StatusCode, problem.Title, problem.Detail)
		failure.model = problem
	}
	return failure
}

// unexpected describes a response that is neither a page nor a problem: a proxy may send anything.
func unexpected(response *http.Response, body []byte) string {
	if response.StatusCode == http.StatusNotModified {
		return "Not Modified: PageIfChanged returns this as a value"
	}
	if response.StatusCode < 300 {
		text := []rune(string(body))
		return "Unexpected Response: not a page of numbers: " + string(text[:min(100, len(text))])
	}
	found := response.Header.Get("Content-Type")
	if found == "" {
		found = "no Content-Type"
	}
	return "Unexpected Response: " + found + " instead of application/problem+json"
}

// Problem returns the problem that the service sent, or nil if the response is not a problem, such as one from a proxy.
func (e GenericOpenAPIError) Problem() *Problem {
	if problem, ok := e.model.(Problem); ok {
		return &problem
	}
	return nil
}

// RequestID returns the X-Request-Id of the response, which finds the request in the service's log, or an empty string.
func (e GenericOpenAPIError) RequestID() string {
	return e.requestID
}
