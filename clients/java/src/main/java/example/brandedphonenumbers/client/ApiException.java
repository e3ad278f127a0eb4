package example.brandedphonenumbers.client;

import com.fasterxml.jackson.core.JsonProcessingException;
import example.brandedphonenumbers.client.model.Problem;
import java.net.http.HttpHeaders;
import javax.annotation.Nullable;

/**
 * A request that failed. Its message is {@code <status> <title>: <detail>} if the service sent a problem.
 * If there was no response, its cause is the {@link java.io.IOException}.
 */
public class ApiException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  private final int code;
  private final transient @Nullable HttpHeaders responseHeaders;
  private final @Nullable String responseBody;
  private final transient @Nullable Problem problem;

  /**
   * Creates the error for a request that got no response.
   *
   * @param cause why there was no response
   */
  public ApiException(Throwable cause) {
    super(cause);
    code = 0;
    responseHeaders = null;
    responseBody = null;
    problem = null;
  }

  /**
   * Creates the error for a response other than a page.
   *
   * @param code its status
   * @param responseHeaders its headers
   * @param responseBody its body
   */
  public ApiException(int code, HttpHeaders responseHeaders, String responseBody) {
    this(code, responseHeaders, responseBody, null);
  }

  /** Creates the error for a response in which {@code found} is wrong, unless it is null. */
  ApiException(int code, HttpHeaders responseHeaders, String responseBody, @Nullable String found) {
    this(code, responseHeaders, responseBody, problem(responseBody), found);
  }

  private ApiException(
      int code, HttpHeaders responseHeaders, String responseBody, @Nullable Problem problem, @Nullable String found) {
    super(code + " " + (problem == null
        ? found == null ? unexpected(code, responseHeaders, responseBody) : "Unexpected Response: " + found
        : problem.getTitle() + ": " + problem.getDetail()));
    this.code = code;
    this.responseHeaders = responseHeaders;
    this.responseBody = responseBody;
    this.problem = problem;
  }

  /** Describes a response that is neither a page nor a problem. */
  private static String unexpected(int code, HttpHeaders headers, String body) {
    if (code == 304) return "Not Modified: pageIfChanged returns this as a value";
    if (code / 100 == 2) return "Unexpected Response: not a page of numbers: " + body.substring(0, Math.min(100, body.length()));
    String found = headers.firstValue("Content-Type").orElse("no Content-Type");
    return "Unexpected Response: " + found + " instead of application/problem+json";
  }

  /** Returns the problem in a body, or null if a proxy sent something else: HTML, other JSON, nothing. */
  private static @Nullable Problem problem(String body) {
    try {
      Problem read = ApiClient.createDefaultObjectMapper().readValue(body, Problem.class);
      return read != null && read.getTitle() != null && read.getDetail() != null ? read : null;
    } catch (JsonProcessingException e) {
      return null;
    }
  }

  /**
   * Returns the status of the response.
   *
   * @return the status code, or 0 if there was no response
   */
  public int getCode() {
    return code;
  }

  /**
   * Returns the problem that the service sent.
   *
   * @return the problem, or null if there was no response, or if the response is not a problem, such as one from a proxy
   */
  public @Nullable Problem getProblem() {
    return problem;
  }

  /**
   * Returns the headers of the response.
   *
   * @return the headers, or null if there was no response
   */
  public @Nullable HttpHeaders getResponseHeaders() {
    return responseHeaders;
  }

  /**
   * Returns the {@code X-Request-Id} of the response, which finds the request in the service's log.
   *
   * @return the id, or null if there was no response, or if a proxy sent it
   */
  public @Nullable String getRequestId() {
    return responseHeaders == null ? null : responseHeaders.firstValue("X-Request-Id").orElse(null);
  }

  /**
   * Returns the body of the response.
   *
   * @return the text, or null if there was no response
   */
  public @Nullable String getResponseBody() {
    return responseBody;
  }
}
