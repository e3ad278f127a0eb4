package example.brandedphonenumbers.client;

import com.fasterxml.jackson.core.JsonProcessingException;
import example.brandedphonenumbers.client.model.Problem;
import java.net.http.HttpHeaders;
import javax.annotation.Nullable;

/**
 * A request that failed. Its message is {@code <status> <title>: <detail>} where the service answered with a problem.
 * Without any answer, its cause is the {@link java.io.IOException}.
 */
public class ApiException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  private final int code;
  private final transient @Nullable HttpHeaders responseHeaders;
  private final @Nullable String responseBody;
  private final transient @Nullable Problem problem;

  /**
   * A request without an answer.
   *
   * @param cause why there was none
   */
  public ApiException(Throwable cause) {
    super(cause);
    code = 0;
    responseHeaders = null;
    responseBody = null;
    problem = null;
  }

  /**
   * An answer other than a page.
   *
   * @param code its status
   * @param responseHeaders its headers
   * @param responseBody its body
   */
  public ApiException(int code, HttpHeaders responseHeaders, String responseBody) {
    this(code, responseHeaders, responseBody, problem(responseBody));
  }

  private ApiException(int code, HttpHeaders responseHeaders, String responseBody, @Nullable Problem problem) {
    super(code + " " + (problem == null
        ? unexpected(code, responseHeaders, responseBody)
        : problem.getTitle() + ": " + problem.getDetail()));
    this.code = code;
    this.responseHeaders = responseHeaders;
    this.responseBody = responseBody;
    this.problem = problem;
  }

  /** What to call an answer that is neither a page nor a problem. */
  private static String unexpected(int code, HttpHeaders headers, String body) {
    if (code == 304) return "Not Modified: pageIfChanged returns this as a value";
    if (code / 100 == 2) return "Unexpected Answer: not a page of numbers: " + body.substring(0, Math.min(100, body.length()));
    String found = headers.firstValue("Content-Type").orElse("no Content-Type");
    return "Unexpected Answer: " + found + " instead of application/problem+json";
  }

  /** A proxy on the way may answer anything: HTML, other JSON, nothing. */
  private static @Nullable Problem problem(String body) {
    try {
      Problem read = ApiClient.createDefaultObjectMapper().readValue(body, Problem.class);
      return read != null && read.getTitle() != null && read.getDetail() != null ? read : null;
    } catch (JsonProcessingException e) {
      return null;
    }
  }

  /**
   * The status of the answer.
   *
   * @return the status code, or 0 without an answer
   */
  public int getCode() {
    return code;
  }

  /**
   * What the service said.
   *
   * @return the problem, or null if there was no answer, or one that is not a problem, such as a proxy's
   */
  public @Nullable Problem getProblem() {
    return problem;
  }

  /**
   * The headers of the answer.
   *
   * @return the headers, or null without an answer
   */
  public @Nullable HttpHeaders getResponseHeaders() {
    return responseHeaders;
  }

  /**
   * The body of the answer.
   *
   * @return the text, or null without an answer
   */
  public @Nullable String getResponseBody() {
    return responseBody;
  }
}
