package example.brandedphonenumbers.client;

import com.fasterxml.jackson.core.JsonProcessingException;
import example.brandedphonenumbers.client.BrandedPhoneNumbersApi.APIListBrandedPhoneNumbersRequest;
import example.brandedphonenumbers.client.model.BrandedPhoneNumber;
import example.brandedphonenumbers.client.model.BrandedPhoneNumberPage;
import java.io.IOException;
import java.net.http.HttpTimeoutException;
import java.time.DateTimeException;
import java.time.Duration;
import java.time.Instant;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.Collections;
import java.util.Iterator;
import java.util.Spliterator;
import java.util.Spliterators.AbstractSpliterator;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/** All pages as one walk, at the pace that the service allows. */
public final class Pages {
  /** How many times a page is requested before its error is thrown. */
  private static final int TRIES = 5;

  private static final Duration LONGEST_WAIT = Duration.ofSeconds(60);

  private Pages() {}

  /**
   * Every number that matches, page after page. After a 429, a 503 or a broken connection it waits and tries again; a page
   * is requested at most five times.
   *
   * @param api where to ask
   * @param request the filters, and optionally the size of a page and the cursor to start at
   * @return the numbers, requested as they are read; an {@link ApiException} ends the walk, and closing the stream in
   *     another thread ends a walk that waits, with a {@link CancellationException}
   */
  public static Stream<BrandedPhoneNumber> eachNumber(
      BrandedPhoneNumbersApi api, APIListBrandedPhoneNumbersRequest request) {
    Walk walk = new Walk(api, request);
    return StreamSupport.stream(walk, false).onClose(walk.closed::countDown);
  }

  private static final class Walk extends AbstractSpliterator<BrandedPhoneNumber> {
    final CountDownLatch closed = new CountDownLatch(1);
    private final BrandedPhoneNumbersApi api;
    private APIListBrandedPhoneNumbersRequest request;
    private Iterator<BrandedPhoneNumber> items = Collections.emptyIterator();
    private boolean isLast = false;

    Walk(BrandedPhoneNumbersApi api, APIListBrandedPhoneNumbersRequest request) {
      super(Long.MAX_VALUE, Spliterator.ORDERED | Spliterator.DISTINCT | Spliterator.NONNULL);
      this.api = api;
      this.request = request.size() == null ? request.toBuilder().size(100).build() : request;
    }

    @Override
    public boolean tryAdvance(Consumer<? super BrandedPhoneNumber> action) {
      while (!items.hasNext()) {
        if (isLast) return false;
        BrandedPhoneNumberPage page = ask();
        items = page.getItems().iterator();
        isLast = page.getNextCursor() == null;
        request = request.toBuilder().nextCursor(page.getNextCursor()).build();
      }
      action.accept(items.next());
      return true;
    }

    private BrandedPhoneNumberPage ask() {
      for (int attempt = 1; ; attempt++) {
        try {
          return api.listBrandedPhoneNumbers(request);
        } catch (ApiException e) {
          if (attempt == TRIES || !isPassing(e)) throw e;
          sleep(waitAfter(e, attempt));
        }
      }
    }

    private void sleep(Duration wait) {
      try {
        if (closed.await(wait.toMillis(), TimeUnit.MILLISECONDS)) throw new CancellationException("the stream was closed");
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new ApiException(e);
      }
    }
  }

  /** Whether the same request may succeed a little later. */
  private static boolean isPassing(ApiException error) {
    Throwable cause = error.getCause();
    if (cause == null) return error.getCode() == 429 || error.getCode() == 503;
    return cause instanceof IOException
        && !(cause instanceof HttpTimeoutException || cause instanceof JsonProcessingException);
  }

  /** As long as the service says, or half a second, doubled with each attempt. */
  private static Duration waitAfter(ApiException error, int attempt) {
    Duration doubling = Duration.ofMillis(500L << (attempt - 1));
    if (error.getResponseHeaders() == null) return doubling;
    Duration wait = error.getResponseHeaders().firstValue("Retry-After").map(Pages::readRetryAfter).orElse(doubling);
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
