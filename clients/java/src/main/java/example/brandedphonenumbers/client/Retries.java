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

/** Requests that are sent again when they fail for a reason that passes. */
final class Retries {
  /** How many times a request is sent before its error is thrown. */
  private static final int TRIES = 5;

  private static final Duration LONGEST_WAIT = Duration.ofSeconds(60);
  private static final Set<Integer> PASSING = Set.of(429, 502, 503, 504);

  private Retries() {}

  /**
   * Sends a request, up to five times while it fails with a 429, 502, 503, 504 or a broken connection.
   *
   * @param closed ends the waiting
   */
  static <T> T retrying(Supplier<T> send, CountDownLatch closed) {
    for (int attempt = 1; ; attempt++) {
      try {
        return send.get();
      } catch (ApiException e) {
        if (attempt == TRIES || !isPassing(e)) throw e;
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

  /** Whether the same request may succeed a little later. */
  private static boolean isPassing(ApiException error) {
    Throwable cause = error.getCause();
    if (cause == null) return PASSING.contains(error.getCode());
    return cause instanceof IOException && !(cause instanceof HttpTimeoutException);
  }

  /** As long as the service says, or half a second, doubled with each attempt. */
  private static Duration waitAfter(ApiException error, int attempt) {
    Duration doubling = Duration.ofMillis(500L << (attempt - 1));
    if (error.getResponseHeaders() == null) return doubling;
    Duration wait = error.getResponseHeaders().firstValue("Retry-After").map(Retries::readRetryAfter).orElse(doubling);
    return wait.compareTo(LONGEST_WAIT) > 0 ? LONGEST_WAIT : wait;
  }

  /** Seconds, or a date (RFC 9110 section 10.2.3); null if it is neither. */
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
