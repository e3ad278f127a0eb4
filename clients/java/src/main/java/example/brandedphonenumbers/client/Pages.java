package example.brandedphonenumbers.client;

import example.brandedphonenumbers.client.BrandedPhoneNumbersApi.APIListBrandedPhoneNumbersRequest;
import example.brandedphonenumbers.client.model.BrandedPhoneNumber;
import example.brandedphonenumbers.client.model.BrandedPhoneNumberPage;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Spliterator;
import java.util.Spliterators.AbstractSpliterator;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CountDownLatch;
import java.util.function.Consumer;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import javax.annotation.Nullable;

/** Reads all pages, or one page if it has changed. */
public final class Pages {
  private Pages() {}

  /**
   * Returns every number that matches, page after page. Waits and retries after a 429, 502, 503, 504 or a broken connection,
   * and requests a page at most five times.
   *
   * @param api the client to use
   * @param request the filters, and optionally the size of a page and the cursor to start at
   * @return the numbers; each page is requested when its first number is read. The stream throws an {@link ApiException} if a
   *     request fails, and a {@link CancellationException} if another thread closes it while it waits
   */
  public static Stream<BrandedPhoneNumber> eachNumber(
      BrandedPhoneNumbersApi api, APIListBrandedPhoneNumbersRequest request) {
    Walk walk = new Walk(api.withoutRetry(), request);
    return StreamSupport.stream(walk, false).onClose(walk.closed::countDown);
  }

  /** A page, and the {@code ETag} that identifies this version of it. */
  public static final class TaggedPage {
    private final BrandedPhoneNumberPage page;
    private final @Nullable String etag;

    private TaggedPage(BrandedPhoneNumberPage page, @Nullable String etag) {
      this.page = page;
      this.etag = etag;
    }

    /**
     * Returns the page.
     *
     * @return the page
     */
    public BrandedPhoneNumberPage getPage() {
      return page;
    }

    /**
     * Returns the {@code ETag} of the page.
     *
     * @return the tag, or null if a proxy has removed it
     */
    public @Nullable String getEtag() {
      return etag;
    }
  }

  /**
   * Returns a page with its {@code ETag}, or nothing if it has not changed since it had this {@code etag} (304 Not Modified).
   *
   * @param api the client to use
   * @param etag the tag of the page that the caller has, or null to always get the page
   * @param request the filters, the size and the cursor of that page
   * @return the page, or an empty Optional if it has not changed
   * @throws ApiException if the request fails
   */
  public static Optional<TaggedPage> pageIfChanged(
      BrandedPhoneNumbersApi api, @Nullable String etag, APIListBrandedPhoneNumbersRequest request) {
    try {
      ApiResponse<BrandedPhoneNumberPage> response =
          api.listBrandedPhoneNumbersWithHttpInfo(request, etag == null ? null : Map.of("If-None-Match", etag));
      List<String> tags = response.getHeaders().get("ETag");
      return Optional.of(new TaggedPage(response.getData(), tags == null ? null : tags.get(0)));
    } catch (ApiException e) {
      if (e.getCode() == 304) return Optional.empty();
      throw e;
    }
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
        BrandedPhoneNumberPage page = Retries.retrying(() -> api.listBrandedPhoneNumbers(request), closed);
        items = page.getItems().iterator();
        isLast = page.getNextCursor() == null;
        request = request.toBuilder().nextCursor(page.getNextCursor()).build();
      }
      action.accept(items.next());
      return true;
    }
  }
}
