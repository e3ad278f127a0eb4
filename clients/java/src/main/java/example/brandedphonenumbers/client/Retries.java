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
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import java.util.function.Supplier;
import javax.annotation.Nullable;
import javax.net.ssl.SSLException;

/** Retries requests after transient failures. */
final class Retries {
  /** The least wait before the first retry. It doubles with each retry. */
  private static final Duration FIRST_WAIT = Duration.ofMillis(500);
  /** Bounds the doubling, so that a call soon notices that the service is back. */
  private static final Duration MAX_DOUBLED_WAIT = Duration.ofSeconds(8);
  /** Bounds a random part of each wait, so that processes with the same key do not all retry at the same time. */
  private static final int MAX_RANDOM_MS = 500;

  private static final Set<Integer> TRANSIENT_STATUSES = Set.of(429, 502, 503, 504);

  private Retries() {}

  /**
   * Sends a request, and retries after a 429, 502, 503, 504 or a broken connection, until its attempts and the waits before
   * retries would take more than {@code retryFor} in total.
   *
   * @param pace sends each attempt when the rate limit allows it; what it waits does not count
   * @param closed cancels the wait before a retry when it reaches zero
   */
  static <T> T retrying(Supplier<T> send, Function<Supplier<T>, T> pace, Duration retryFor, CountDownLatch closed) {
    AtomicLong began = new AtomicLong();
    Duration left = retryFor;
    for (Duration least = FIRST_WAIT; ; least = min(least.multipliedBy(2), MAX_DOUBLED_WAIT)) {
      try {
        return pace.apply(() -> {
          began.set(System.nanoTime());
          return send.get();
        });
      } catch (ApiException e) {
        Duration wait = max(retryAfter(e), least).plusMillis(ThreadLocalRandom.current().nextInt(MAX_RANDOM_MS));
        left = left.minusNanos(System.nanoTime() - began.get()).minus(wait);
        if (left.isNegative() || !isTransient(e)) throw e;
        sleep(wait, closed);
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

  private static Duration min(Duration one, Duration other) {
    return one.compareTo(other) < 0 ? one : other;
  }

  private static Duration max(Duration one, Duration other) {
    return one.compareTo(other) > 0 ? one : other;
  }

  /** Parses Retry-After, seconds or a date (RFC 9110 section 10.2.3). Returns zero if it is neither. */
  private static Duration retryAfter(ApiException error) {
    String value = error.getResponseHeaders() == null ? "" : error.getResponseHeaders().firstValue("Retry-After").orElse("");
    try {
      if (value.matches("\\d{1,9}")) return Duration.ofSeconds(Long.parseLong(value));
      return Duration.between(Instant.now(), ZonedDateTime.parse(value, DateTimeFormatter.RFC_1123_DATE_TIME));
    } catch (DateTimeException e) {
      return Duration.ZERO;
    }
  }
}
