package example.brandedphonenumbers.client;

import java.io.IOException;
import java.net.http.HttpTimeoutException;
import java.time.DateTimeException;
import java.time.Duration;
import java.time.Instant;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/** Retries requests after transient failures. */
final class Retries {
  /** How often a request is sent before its error is thrown. */
  private static final int MAX_ATTEMPTS = 5;

  private static final Duration MAX_WAIT = Duration.ofSeconds(60);
  private static final Set<Integer> TRANSIENT_STATUSES = Set.of(429, 502, 503, 504);

  private Retries() {}

  /**
   * Sends a request, and retries after a 429, 502, 503, 504 or a broken connection. Sends it at most five times.
   *
   * @param closed cancels the wait before a retry when it reaches zero
   */
  static <T> T retrying(Supplier<T> send, CountDownLatch closed) {
    for (int attempt = 1; ; attempt++) {
      try {
        return send.get();
      } catch (ApiException e) {
        if (attempt == MAX_ATTEMPTS || !isTransient(e)) throw e;
        sleep(waitAfter(e, attempt), closed);
      }
    }
  }

  private static void sleep(Duration wait, CountDownLatch closed) {
    try {
      if (closed.await(wait.toMillis(), TimeUnit.MILLISECONDS)) throw new CancellationException("the stream was closed");
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new ApiException(e);
    }
  }

  /** Returns whether the same request may succeed soon. */
  private static boolean isTransient(ApiException error) {
    Throwable cause = error.getCause();
    if (cause == null) return TRANSIENT_STATUSES.contains(error.getCode());
    return cause instanceof IOException && !(cause instanceof HttpTimeoutException);
  }

  /** Returns how long to wait: as Retry-After says, or half a second, doubled with each attempt; at most MAX_WAIT. */
  private static Duration waitAfter(ApiException error, int attempt) {
    Duration doubling = Duration.ofMillis(500L << (attempt - 1));
    if (error.getResponseHeaders() == null) return doubling;
    Duration wait = error.getResponseHeaders().firstValue("Retry-After").map(Retries::readRetryAfter).orElse(doubling);
    return wait.compareTo(MAX_WAIT) > 0 ? MAX_WAIT : wait;
  }

  /** Parses Retry-After: seconds or a date (RFC 9110 section 10.2.3). Returns null if it is neither. */
  private static Duration readRetryAfter(String value) {
    try {
      if (value.matches("\\d{1,9}")) return Duration.ofSeconds(Long.parseLong(value));
      ZonedDateTime date = ZonedDateTime.parse(value, DateTimeFormatter.RFC_1123_DATE_TIME);
      Duration wait = Duration.between(Instant.now(), date);
      return wait.isNegative() ? Duration.ZERO : wait;
    } catch (DateTimeException e) {
      return null;
    }
  }
}
