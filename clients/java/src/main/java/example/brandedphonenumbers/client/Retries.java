package example.brandedphonenumbers.client;

import java.io.EOFException;
import java.io.IOException;
import java.net.SocketException;
import java.net.http.HttpTimeoutException;
import java.time.DateTimeException;
import java.time.Duration;
import java.time.Instant;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import javax.annotation.Nullable;
import javax.net.ssl.SSLException;

/** Retries requests after transient failures. */
final class Retries {
  /** How often a request may fail before its error is thrown. Refusals by the rate limit do not count. */
  private static final int MAX_FAILURES = 5;
  /** The longest wait before a retry, and by default the total of a call's waits. */
  static final Duration MAX_WAIT = Duration.ofSeconds(60);
  /** Bounds a random part of each wait, so that processes with the same key do not all retry at the same time. */
  private static final int MAX_RANDOM_MS = 500;

  private static final Set<Integer> TRANSIENT_STATUSES = Set.of(502, 503, 504);

  private Retries() {}

  /**
   * Sends a request, and retries after a 429, 502, 503, 504 or a broken connection. Gives up after five failures other than a 429.
   *
   * @param budget the total of the waits
   * @param closed cancels the wait before a retry when it reaches zero
   */
  static <T> T retrying(Supplier<T> send, Duration budget, CountDownLatch closed) {
    int failures = 0;
    for (Duration left = budget; ; ) {
      try {
        return send.get();
      } catch (ApiException e) {
        Duration wait = waitAfter(e, failures).plusMillis(ThreadLocalRandom.current().nextInt(MAX_RANDOM_MS));
        if (!isRateLimited(e) && (++failures == MAX_FAILURES || !isTransient(e))) throw e;
        if (left.isZero() || left.isNegative()) throw e;
        sleep(least(wait, left), closed);
        left = left.minus(wait);
      }
    }
  }

  static void sleep(Duration wait, CountDownLatch closed) {
    try {
      if (closed.await(wait.toNanos(), TimeUnit.NANOSECONDS)) throw new CancellationException("the stream was closed");
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new ApiException(e);
    }
  }

  static boolean isRateLimited(ApiException error) {
    return error.getCode() == 429;
  }

  /** Returns whether the same request may succeed soon. */
  private static boolean isTransient(ApiException error) {
    Throwable cause = error.getCause();
    if (cause == null) return TRANSIENT_STATUSES.contains(error.getCode());
    if (cause instanceof SSLException) return isBroken(cause);
    return cause instanceof IOException && !(cause instanceof HttpTimeoutException);
  }

  /** Returns whether an error of TLS was a broken connection. Others, such as an untrusted certificate, are permanent. */
  private static boolean isBroken(@Nullable Throwable error) {
    return error != null && (error instanceof EOFException || error instanceof SocketException || isBroken(error.getCause()));
  }

  /** Returns how long to wait: as Retry-After says, or half a second, doubled with each failure; at most MAX_WAIT. */
  private static Duration waitAfter(ApiException error, int failures) {
    Duration doubling = Duration.ofMillis(500L << failures);
    if (error.getResponseHeaders() == null) return doubling;
    return least(error.getResponseHeaders().firstValue("Retry-After").map(Retries::readRetryAfter).orElse(doubling), MAX_WAIT);
  }

  private static Duration least(Duration one, Duration other) {
    return one.compareTo(other) < 0 ? one : other;
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
